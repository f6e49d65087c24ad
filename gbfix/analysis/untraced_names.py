"""The names of what Dynamo does not trace, by diagnosis.

Made by trying each of them on torch 2.13. What Dynamo traces by now (`os.environ`, `copy.deepcopy` of
plain objects, `record_function`, `torch.cuda.synchronize`) is not listed, so that nothing is reported
that does not break.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gbfix.diagnosis import Diagnosis
from gbfix.python_diagnoses import (
    AUTOGRAD_CALL,
    DEBUGGER,
    FILE_ACCESS,
    HOUSEKEEPING,
    LIBRARY_CHECK,
    MEASUREMENT,
    OBJECT_COPY,
    PROCESS_PROBE,
    PROGRESS_BAR,
    RANDOM_CALL,
    SEEDING,
    SPARSE_TENSOR,
    STORAGE_QUERY,
)


def _table() -> Iterator[tuple[str, Diagnosis]]:
    for diagnosis, names in _NAMES:
        for line in names.split():
            head, _, tails = line.partition(":")
            for tail in tails.split(",") if tails else [""]:
                yield (f"{head}.{tail}" if tail else head), diagnosis


_NAMES: tuple[tuple[Diagnosis, str], ...] = (
    (
        MEASUREMENT,
        """time:time,time_ns,perf_counter,perf_counter_ns,monotonic,monotonic_ns,process_time
        time:process_time_ns,thread_time,strftime,localtime,gmtime,ctime,asctime
        timeit.default_timer datetime.datetime:now,utcnow,today datetime.date.today
        torch.cuda:memory_allocated,max_memory_allocated,memory_reserved,max_memory_reserved
        torch.cuda:memory_summary,memory_stats,mem_get_info
        psutil:virtual_memory,cpu_percent resource.getrusage tracemalloc.get_traced_memory
        sys.getsizeof""",
    ),
    (
        PROGRESS_BAR,
        """tqdm:tqdm,trange tqdm.auto:tqdm,trange tqdm.notebook:tqdm,trange tqdm.std:tqdm,trange
        tqdm.rich:tqdm,trange rich.progress.track""",
    ),
    (
        HOUSEKEEPING,
        """gc:collect,enable,disable,freeze,unfreeze time.sleep
        warnings:simplefilter,filterwarnings,resetwarnings""",
    ),
    (DEBUGGER, "builtins.breakpoint pdb.set_trace ipdb.set_trace IPython.embed"),
    (
        FILE_ACCESS,
        """builtins.open io.open torch:save,load numpy:save,savez,savez_compressed,savetxt,load
        numpy:loadtxt os:makedirs,mkdir,remove pickle:dump,load json:dump,load
        torchvision.utils.save_image torchvision.io.write_png matplotlib.pyplot.savefig""",
    ),
    (
        RANDOM_CALL,
        """random:random,choice,choices,shuffle,sample,gauss,normalvariate,betavariate
        random:expovariate,triangular,getrandbits,lognormvariate,gammavariate
        numpy.random:rand,randn,random,random_sample,uniform,normal,standard_normal,beta,gamma
        numpy.random:randint,integers,choice,permutation,shuffle,binomial,poisson,exponential
        numpy.random:dirichlet,laplace,lognormal uuid:uuid1,uuid4 secrets:token_hex,randbelow
        os.urandom""",
    ),
    (
        SEEDING,
        """torch:manual_seed,get_rng_state,set_rng_state,initial_seed torch.random:manual_seed
        torch.random:get_rng_state,set_rng_state,fork_rng,initial_seed
        torch.cuda:manual_seed,manual_seed_all,get_rng_state,set_rng_state,get_rng_state_all
        torch.cuda:set_rng_state_all,initial_seed random:seed,getstate,setstate
        transformers.set_seed torch.Generator""",
    ),
    (
        PROCESS_PROBE,
        """os:cpu_count,sysconf,getpid,getcwd,listdir,uname os.path:exists,isfile,isdir
        socket.gethostname torch.cuda:device_count torch:get_num_threads""",
    ),
    (OBJECT_COPY, "copy.copy"),
    (STORAGE_QUERY, "torch.is_inference_mode_enabled"),
    (LIBRARY_CHECK, "torch.nn.functional.gaussian_nll_loss"),
    (
        SPARSE_TENSOR,
        """torch:sparse_coo_tensor,sparse_csr_tensor,sparse_csc_tensor,sparse_compressed_tensor
        torch:spmm,hspmm,sspaddmm torch.sparse:mm,addmm,softmax,log_softmax,sum,sampled_addmm""",
    ),
    (AUTOGRAD_CALL, "torch.autograd:grad,backward"),
)
UNTRACED: Mapping[str, Diagnosis] = dict(_table())
