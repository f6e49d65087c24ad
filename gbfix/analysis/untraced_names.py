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
    UNTRACED_CALL,
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
        """os:cpu_count,sysconf,getpid,getcwd,listdir,uname os.path:exists,isfile,isdir,getsize
        getpass.getuser shutil.which multiprocessing.cpu_count socket.gethostname
        torch.cuda:device_count torch:get_num_threads""",
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
    (
        UNTRACED_CALL,
        """inspect:currentframe,stack,getsource traceback:format_stack,extract_stack,print_stack
        sys:_getframe,getrefcount threading:get_ident,current_thread,get_native_id,Lock,Thread
        hashlib:md5,sha1,sha256 pickle:dumps,loads json:dumps,loads base64:b64encode,b64decode
        bisect:bisect,bisect_left,bisect_right,insort heapq:nlargest,nsmallest,heappush,heappop,heapify
        statistics.mean decimal.Decimal types.SimpleNamespace queue.Queue subprocess:run
        subprocess:check_output os.system builtins:exec,globals,dir
        numpy:interp,digitize,vectorize,apply_along_axis,histogram
        torch.nested:nested_tensor,as_nested_tensor torch:from_dlpack,frombuffer,result_type,can_cast
        torch.utils.dlpack:to_dlpack,from_dlpack torch.nn.utils.rnn:pack_sequence
        torch.autograd.functional:jacobian,hessian torch.jit:trace,script torch.fx.symbolic_trace
        torch:combinations,set_num_threads torch.linalg.lstsq torch.nn.init.trunc_normal_""",
    ),
)
# Layers with parameters, which Dynamo makes none of: in what is traced, not where a model is built.
BUILT: frozenset[str] = frozenset(
    f"torch.nn.{n}"
    for n in (
        "Parameter Linear Bilinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d Embedding "
        "LayerNorm RMSNorm GroupNorm BatchNorm1d BatchNorm2d MultiheadAttention PReLU"
    ).split()
)
UNTRACED: Mapping[str, Diagnosis] = dict(_table())
