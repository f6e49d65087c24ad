"""Rewrites that the checker must catch, and rewrites that look wrong and are not.

Each is a file with a function or class called `target`, as it was and as it is rewritten. The branch
of the original is gone in both, so that only what else differs decides the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = "import logging\nimport random\nimport warnings\nimport torch\nfrom torch import nn\n\n\n"
LOG = "logger = logging.getLogger('user')\n\n\n"
COMPILING = "torch.compiler.is_compiling()"


@dataclass(frozen=True)
class Rewrite:
    """Two versions of a file, and the words that the verdict's differences must have."""

    name: str
    before: str
    after: str
    says: str = ""


def _branch(true: str, false: str, *, test: str = "x.sum() > 0", head: str = "") -> str:
    return (
        f"{HEAD}{head}def target(x):\n    if {test}:\n        return {true}\n    return {false}\n"
    )


def _rewritten(
    compiled: str, true: str, false: str, *, test: str = "x.sum() > 0", head: str = ""
) -> str:
    """The guarded form: what runs compiled, and the branch for eager."""
    return (
        f"{HEAD}{head}def target(x):\n    if {COMPILING}:\n        return {compiled}\n"
        f"    if {test}:\n        return {true}\n    return {false}\n"
    )


def _pair(name: str, true: str, false: str, compiled: str, says: str = "") -> Rewrite:
    return Rewrite(name, _branch(true, false), _rewritten(compiled, true, false), says)


def _eager(name: str, body: str, after: str, says: str = "") -> Rewrite:
    """A function whose rewritten version is the same text in both modes."""
    return Rewrite(name, HEAD + LOG + body, HEAD + LOG + after, says)


def _module(name: str, made: str, before: str, after: str, says: str = "") -> Rewrite:
    """A module by what its constructor makes, with two versions of what `forward` does."""

    def text(body: str) -> str:
        lines = "".join(f"        {line}\n" for line in body.splitlines())
        return (
            f"{HEAD}class Kept:\n    value = None\n\n\n"
            "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            f"        {made}\n\n    def forward(self, x):\n{lines}"
        )

    return Rewrite(name, text(before), text(after), says)


_COUNTED = "n = 0\nwhile x.abs().sum() > 8:\n    x = x * 0.5"
_ROUNDS = f"""if {COMPILING}:
    (x,) = torch.while_loop(lambda x: x.abs().sum() > 8, lambda x: (x * 0.5,), (x.clone(),))
else:
    while x.abs().sum() > 8:
        x = x * 0.5"""


WRONG = (
    _pair(
        "arms swapped",
        "x + 1",
        "x - 1",
        "torch.cond(x.sum() > 0, lambda: x - 1, lambda: x + 1)",
        "compiled",
    ),
    _pair(
        "operand forgotten",
        "x * 2 + 1",
        "x * 3",
        "torch.cond(x.sum() > 0, lambda: x * 2, lambda: x * 3)",
        "compiled",
    ),
    _pair("wrong comparison", "x + 1", "x - 1", "torch.where(x.sum() >= 0, x + 1, x - 1)", "call"),
    _pair(
        "test turned round, but not for NaN",
        "x + 1",
        "x - 1",
        "torch.where(x.sum() <= 0, x - 1, x + 1)",
    ),
    _pair("elementwise test", "x + 1", "x - 1", "torch.where(x > 0, x + 1, x - 1)"),
    _pair("negated test", "x + 1", "x - 1", "torch.where(~(x.sum() > 0), x + 1, x - 1)"),
    _pair("wrong reduction", "x + 1", "x - 1", "torch.where(x.max() > 0, x + 1, x - 1)"),
    _pair("one arm off by 1e-3", "x * 1.0", "x - 1", "torch.where(x.sum() > 0, x * 1.001, x - 1)"),
    _pair(
        "only the rare arm off by 1e-3",
        "x + 1",
        "x * 0.5",
        "torch.where(x.sum() > 0, x + 1, x * 0.5005)",
    ),
    _pair(
        "dtype promoted by where",
        "x.half()",
        "(x - 1).half()",
        "torch.where(x.sum() > 0, x, x - 1)",
        "dtype",
    ),
    _pair(
        "broadcast by where",
        "x.sum(0, keepdim=True)",
        "x.sum(0, keepdim=True) * 2",
        "torch.where(x.sum() > 0, x.sum(0, keepdim=True) + x * 0, x.sum(0, keepdim=True) * 2)",
        "shape",
    ),
    _pair(
        "NaN gradient through where",
        "x.abs().sum() + x.relu().sqrt().sum() * 0",
        "x.sum() * 2",
        "torch.where(x.sum() > 0, x.abs().sum() + x.relu().sqrt().sum() * 0, x.sum() * 2)",
        "gradient",
    ),
    _pair(
        "NaN gradient of the arm not taken, for zeros",
        "x.norm()",
        "x.sum()",
        "torch.where(x.sum() > 0, (x * x).sum().sqrt(), x.sum())",
        "gradient",
    ),
    _pair(
        "NaN gradient of the arm not taken, for NaN",
        "x.var(unbiased=False)",
        "x.sum()",
        "torch.where(x.sum() > 0, x.var(unbiased=False), x.sum())",
        "gradient",
    ),
    _pair(
        "wrong only in bfloat16",
        "(x * 3).to(torch.bfloat16)",
        "x.to(torch.bfloat16)",
        "torch.where(x.sum() > 0, x.to(torch.bfloat16) * 2.9, x.to(torch.bfloat16))",
    ),
    _pair(
        "gradient lost",
        "x * 2",
        "x * 3",
        "torch.where(x.sum() > 0, (x * 2).detach(), x * 3)",
        "gradient",
    ),
    _pair(
        "gradient wrong but output right",
        "x * 2",
        "x * 3",
        "torch.where(x.sum() > 0, x + x.detach(), x * 3)",
        "gradient",
    ),
    _pair(
        "no gradient at all", "x * 2", "x * 3", "torch.where(x.sum() > 0, x * 2, x * 3).detach()"
    ),
    _pair(
        "NaN replaced",
        "x + 1",
        "x - 1",
        "torch.where(x.sum() > 0, x + 1, x - 1).nan_to_num()",
        "NaN",
    ),
    _pair(
        "tuple becomes list",
        "(x + 1, x)",
        "(x - 1, x)",
        "[torch.where(x.sum() > 0, x + 1, x - 1), x]",
        "list",
    ),
    _pair(
        "results in another order",
        "(x + 1, x * 2)",
        "(x - 1, x * 2)",
        "(x * 2, torch.where(x.sum() > 0, x + 1, x - 1))",
    ),
    _pair(
        "one result fewer",
        "(x + 1, x * 2)",
        "(x - 1, x * 2)",
        "(torch.where(x.sum() > 0, x + 1, x - 1),)",
    ),
    _pair("number instead of flag", "True", "False", "(x.sum() > 0)", "bool"),
    _pair(
        "wrong only for empty input",
        "x + 1",
        "x - 1",
        "torch.where(x.sum() > 0, x + 1, x - 1) if x.numel() else x.new_zeros(1)",
        "shape",
    ),
    _pair(
        "wrong only for another size",
        "x + 1",
        "x - 1",
        "torch.where(x.sum() > 0, x + 1, x - 1) if x.shape[0] < 5 else x + 1",
    ),
    _pair(
        "alias returned where a copy was",
        "x + 0",
        "x + 0",
        "x",
        "is apart",
    ),
    _pair(
        "argument changed in place", "x + 1", "x - 1", "x.add_(torch.where(x.sum() > 0, 1.0, -1.0))"
    ),
    _pair(
        "wrong only where no gradients are recorded",
        "x + 1",
        "x - 1",
        "torch.where(x.sum() > 0, x + 1, x - 1) if torch.is_grad_enabled() else x + 1",
        "in inference",
    ),
    _pair(
        "wrong only where strides are others",
        "x + 1",
        "x - 1",
        "torch.where(x.sum() > 0, x + 1, x - 1) if x.is_contiguous() else x + 1",
        "result",
    ),
    _pair(
        "wrong only for a batch of one",
        "x.softmax(-1).squeeze(-1)",
        "x.tanh().squeeze(-1)",
        "torch.where(x.sum() > 0, x.softmax(-1), x.tanh()).squeeze(-1).squeeze(0)",
        "shape",
    ),
    _pair(
        "wrong only for a tensor without dimensions",
        "x + 1",
        "x - 1",
        "torch.where(x.sum() > 0, x + 1, x - 1) if x.dim() else x + 1",
        "result",
    ),
    _eager(
        "strides changed in eager",
        "def target(x):\n    if x.sum() > 0:\n        return x.mT + 1\n    return x.mT - 1\n",
        "def target(x):\n    return torch.where(x.sum() > 0, x.mT + 1, x.mT - 1).contiguous()\n",
        "stride",
    ),
    _eager(
        "memory format lost in eager",
        "def target(x):\n    if x.sum() > 0:\n        x = x * 2\n"
        "    return x[None, None].expand(2, 3, *x.shape[-2:]).to(memory_format=torch.channels_last)\n",
        "def target(x):\n    x = torch.where(x.sum() > 0, x * 2, x)\n"
        "    return x[None, None].expand(2, 3, *x.shape[-2:]).contiguous()\n",
        "stride",
    ),
    _eager(
        "copy lost, so that the argument changes",
        "def target(x):\n    y = x.clone()\n    if x.sum() > 0:\n        y.mul_(2)\n"
        "    return y.add_(1)\n",
        f"def target(x):\n    if {COMPILING}:\n"
        "        return x.copy_(torch.where(x.sum() > 0, x * 2, x)).add_(1)\n"
        "    y = x.clone()\n    if x.sum() > 0:\n        y.mul_(2)\n    return y.add_(1)\n",
        "argument 1",
    ),
    _eager(
        "result wants a gradient that it did not",
        "w = nn.Parameter(torch.ones(1))\n\n\ndef target(x):\n    if x.sum() > 0:\n"
        "        return (x * w).detach()\n    return x.detach() - 1\n",
        "w = nn.Parameter(torch.ones(1))\n\n\ndef target(x):\n"
        "    return torch.where(x.sum() > 0, x * w, x.detach() - 1)\n",
        "requires_grad",
    ),
    _eager(
        "object among the globals not written",
        "class Last:\n    mean = None\n\n\nlast = Last()\n\n\ndef target(x):\n"
        "    last.mean = x.mean()\n    if x.sum() > 0:\n        return x + 1\n    return x - 1\n",
        "class Last:\n    mean = None\n\n\nlast = Last()\n\n\ndef target(x):\n"
        f"    if {COMPILING}:\n        return torch.where(x.sum() > 0, x + 1, x - 1)\n"
        "    last.mean = x.mean()\n    if x.sum() > 0:\n        return x + 1\n    return x - 1\n",
        "global last",
    ),
    _eager(
        "statistics of a module among the globals not kept",
        "norm = nn.BatchNorm1d(4)\n\n\ndef target(x):\n    if x.sum() > 0:\n"
        "        return norm(x)\n    return x - 1\n",
        "norm = nn.BatchNorm1d(4)\n\n\ndef target(x):\n"
        f"    if {COMPILING}:\n"
        "        y = nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, True)\n"
        "        return torch.where(x.sum() > 0, y, x - 1)\n"
        "    if x.sum() > 0:\n        return norm(x)\n    return x - 1\n",
        "global norm.running_mean",
    ),
    _module(
        "wrong only in training",
        "pass",
        "if x.sum() > 0:\n    x = x * 2\nreturn x + 1",
        "if self.training:\n    return x + 1\nif x.sum() > 0:\n    x = x * 2\nreturn x + 1",
        "eager, ",
    ),
    _module(
        "wrong only in inference",
        "pass",
        "if x.sum() > 0:\n    x = x * 2\nreturn x + 1",
        f"if {COMPILING} and self.training:\n    return torch.where(x.sum() > 0, x * 2, x) + 1\n"
        f"if {COMPILING}:\n    return x + 1\nif x.sum() > 0:\n    x = x * 2\nreturn x + 1",
        "compiled in inference",
    ),
    _module(
        "buffer renamed",
        "self.register_buffer('scale', torch.ones(1))",
        "if x.sum() > 0:\n    return x * self.scale\nreturn x - 1",
        "if not hasattr(self, 'factor'):\n    self.factor = self.scale\n    del self.scale\n"
        "return torch.where(x.sum() > 0, x * self.factor, x - 1)",
        "state self.scale",
    ),
    _module(
        "attribute of an object lost after a cond",
        "self.kept, self.seen = Kept(), None",
        "self.kept.first = x + 0\nx = x + 1 if x.sum() > 0 else x - 1\nself.kept.value = x + 0\n"
        "return x * 2",
        f"self.kept.first = x + 0\nif {COMPILING}:\n"
        "    x = torch.cond(x.sum() > 0, lambda: x + 1, lambda: x - 1)\n"
        "else:\n    x = x + 1 if x.sum() > 0 else x - 1\nself.kept.value = x + 0\nreturn x * 2",
        "self.kept.value",
    ),
    _module(
        "attribute of an object lost after a while_loop",
        "self.kept = Kept()",
        f"self.kept.first = x + 0\n{_COUNTED}\nself.kept.value = x + 0\nreturn x * 2",
        f"self.kept.first = x + 0\n{_ROUNDS}\nself.kept.value = x + 0\nreturn x * 2",
        "self.kept.value",
    ),
    Rewrite(
        "in-place effect lost",
        HEAD + "def target(x):\n    if x.sum() > 0:\n        x.mul_(2)\n    return x + 1\n",
        HEAD + f"def target(x):\n    if {COMPILING}:\n"
        "        return torch.where(x.sum() > 0, x * 2, x) + 1\n"
        "    if x.sum() > 0:\n        x.mul_(2)\n    return x + 1\n",
        "argument",
    ),
    Rewrite(
        "exception lost in compiled",
        HEAD + "def target(x):\n    if torch.isnan(x).any():\n        raise ValueError('bad')\n"
        "    return x + 1\n",
        HEAD + f"def target(x):\n    if not {COMPILING} and torch.isnan(x).any():\n"
        "        raise ValueError('bad')\n    return x + 1\n",
        "raises",
    ),
    _eager(
        "exception type changed in eager",
        "def target(x):\n    if torch.isnan(x).any():\n        raise ValueError('bad')\n"
        "    return x + 1\n",
        "def target(x):\n    torch._assert_async(~torch.isnan(x).any(), 'bad')\n    return x + 1\n",
        "ValueError",
    ),
    _eager(
        "exception message changed in eager",
        "def target(x):\n    if torch.isnan(x).any():\n        raise RuntimeError('bad x')\n"
        "    return x + 1\n",
        "def target(x):\n    torch._assert_async(~torch.isnan(x).any(), 'bad')\n    return x + 1\n",
        "bad x",
    ),
    _eager(
        "print lost in eager",
        "def target(x):\n    print('sum', x.sum())\n    return x + 1\n",
        "def target(x):\n    return x + 1\n",
        "stdout",
    ),
    _eager(
        "print changed in eager",
        "def target(x):\n    print('sum', x.sum())\n    return x + 1\n",
        f"def target(x):\n    if not {COMPILING}:\n        print('sum:', x.sum())\n    return x + 1\n",
        "stdout",
    ),
    _eager(
        "log record lost in eager",
        "def target(x):\n    logger.info('sum %s', x.sum())\n    return x + 1\n",
        "def target(x):\n    return x + 1\n",
        "logged",
    ),
    _eager(
        "log level changed in eager",
        "def target(x):\n    logger.info('sum %s', x.sum())\n    return x + 1\n",
        f"def target(x):\n    if not {COMPILING}:\n        logger.debug('sum %s', x.sum())\n"
        "    return x + 1\n",
        "logged",
    ),
    _eager(
        "warning lost in eager",
        "def target(x):\n    warnings.warn('slow')\n    return x + 1\n",
        "def target(x):\n    return x + 1\n",
        "warned",
    ),
    _eager(
        "random stream shifted in eager",
        "def target(x):\n    if x.sum() > 0:\n        x = x + torch.rand(1)\n    return x * 2\n",
        "def target(x):\n    return torch.where(x.sum() > 0, x + torch.rand(1), x) * 2\n",
        "random",
    ),
    _eager(
        "Python's random stream shifted",
        "def target(x):\n    if x.sum() > 0:\n        return x + 1\n    return x - 1\n",
        "def target(x):\n    random.random()\n    return torch.where(x.sum() > 0, x + 1, x - 1)\n",
        "random.python",
    ),
    _eager(
        "eager gradient None becomes zeros",
        "w = nn.Parameter(torch.ones(1))\nv = nn.Parameter(torch.ones(1))\n\n\n"
        "def target(x):\n    if x.sum() > 0:\n        return x * w\n    return x * v\n",
        "w = nn.Parameter(torch.ones(1))\nv = nn.Parameter(torch.ones(1))\n\n\n"
        "def target(x):\n    return torch.where(x.sum() > 0, x * w, x * v)\n",
        "zeros",
    ),
    _eager(
        "eager bits changed by another order of operations",
        "def target(x):\n    if x.sum() > 0:\n        return x * 0.1 * 0.3\n    return x - 1\n",
        "def target(x):\n    return torch.where(x.sum() > 0, x * (0.1 * 0.3), x - 1)\n",
        "eager",
    ),
    Rewrite(
        "buffer updated in place instead of rebound",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('base', torch.ones(1))\n        self.now = self.base\n\n"
        "    def forward(self, x):\n        if x.sum() > 0:\n            self.now = self.base * 2\n"
        "        else:\n            self.now = self.base\n        return x * self.now\n",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('base', torch.ones(1))\n        self.now = self.base\n\n"
        "    def forward(self, x):\n"
        "        self.now.copy_(torch.where(x.sum() > 0, self.base * 2, self.base))\n"
        "        return x * self.now\n",
        "state",
    ),
    Rewrite(
        "state wrong only on the third call",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('n', torch.zeros(()))\n\n"
        "    def forward(self, x):\n        self.n = self.n + 1\n        if x.sum() > 0:\n"
        "            return x * self.n\n        return x\n",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('n', torch.zeros(()))\n\n"
        f"    def forward(self, x):\n        if {COMPILING}:\n"
        "            self.n = (self.n + 1).clamp(max=2)\n"
        "            return torch.where(x.sum() > 0, x * self.n, x)\n"
        "        self.n = self.n + 1\n        if x.sum() > 0:\n            return x * self.n\n"
        "        return x\n",
        "call 3",
    ),
    Rewrite(
        "state lost in compiled",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.last = None\n\n    def forward(self, x):\n        if x.sum() > 0:\n"
        "            x = x * 2\n        self.last = x\n        return x + 1\n",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.last = None\n\n"
        f"    def forward(self, x):\n        if {COMPILING}:\n"
        "            return torch.where(x.sum() > 0, x * 2, x) + 1\n"
        "        if x.sum() > 0:\n            x = x * 2\n        self.last = x\n        return x + 1\n",
        "self.last",
    ),
    Rewrite(
        "global lost in compiled",
        HEAD + "seen = []\n\n\ndef target(x):\n    seen.append(1)\n    if x.sum() > 0:\n"
        "        return x + 1\n    return x - 1\n",
        HEAD + f"seen = []\n\n\ndef target(x):\n    if {COMPILING}:\n"
        "        return torch.where(x.sum() > 0, x + 1, x - 1)\n    seen.append(1)\n"
        "    if x.sum() > 0:\n        return x + 1\n    return x - 1\n",
        "global seen",
    ),
    Rewrite(
        "read once and then stale",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('n', torch.zeros(()))\n\n"
        "    def forward(self, x):\n        self.n += 1\n        if self.n > 2:\n"
        "            return x * 2\n        return x\n",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('n', torch.zeros(()))\n        self.big = bool(self.n > 2)\n\n"
        "    def forward(self, x):\n        self.n += 1\n        if self.big:\n"
        "            return x * 2\n        return x\n",
        "result",
    ),
)

RIGHT = (
    _pair(
        "cond",
        "x + 1",
        "x - 1",
        "torch.cond(x.sum() > 0, lambda: x + 1, lambda: x - 1)",
    ),
    _pair(
        "product and sum in one",
        "x.prod() + x.sum()",
        "x.sum()",
        "torch.cond(x.sum() > 0, lambda: x.sum() + x.prod(), lambda: x.sum())",
    ),
    _pair("where", "x + 1", "x - 1", "torch.where(x.sum() > 0, x + 1, x - 1)"),
    _pair(
        "other order of operations, compiled only",
        "x * 0.1 * 0.3",
        "x - 1",
        "torch.where(x.sum() > 0, x * (0.1 * 0.3), x - 1)",
    ),
    _pair(
        "another algorithm for a mean",
        "x.mean(0)",
        "x.sum(0)",
        "torch.where(x.sum() > 0, x.sum(0) / x.shape[0], x.sum(0))",
    ),
    _pair(
        "softmax written out",
        "x.softmax(-1)",
        "x.tanh()",
        "torch.cond(x.sum() > 0, lambda: x.softmax(-1), lambda: x.tanh())",
    ),
    _pair(
        "copy of an argument in one arm",
        "x",
        "x * 2",
        "torch.cond(x.sum() > 0, lambda: x.clone(), lambda: x * 2)",
    ),
    _pair(
        "nested tuple",
        "(x + 1, [x * 2])",
        "(x - 1, [x * 3])",
        "(torch.where(x.sum() > 0, x + 1, x - 1), [torch.where(x.sum() > 0, x * 2, x * 3)])",
    ),
    _eager(
        "print kept out of the graph",
        "def target(x):\n    print('sum', x.sum())\n    return x + 1\n",
        f"def target(x):\n    if not {COMPILING}:\n        print('sum', x.sum())\n    return x + 1\n",
    ),
    _eager(
        "log kept out of the graph",
        "def target(x):\n    logger.info('sum %s', x.sum())\n    return x + 1\n",
        f"def target(x):\n    if not {COMPILING}:\n        logger.info('sum %s', x.sum())\n"
        "    return x + 1\n",
    ),
    _eager(
        "check inside the graph",
        "def target(x):\n    if torch.isnan(x).any():\n        raise ValueError('bad')\n"
        "    return x + 1\n",
        f"def target(x):\n    if {COMPILING}:\n"
        "        torch._assert_async(~torch.isnan(x).any(), 'bad')\n"
        "    elif torch.isnan(x).any():\n        raise ValueError('bad')\n    return x + 1\n",
    ),
    _eager(
        "where in eager too",
        "def target(x):\n    if x.sum() > 0:\n        return x + 1\n    return x - 1\n",
        "def target(x):\n    return torch.where(x.sum() > 0, x + 1, x - 1)\n",
    ),
    _eager(
        "random numbers in both arms, drawn alike",
        "def target(x):\n    if x.sum() > 0:\n        return x + torch.rand(1)\n"
        "    return x - torch.rand(1)\n",
        f"def target(x):\n    if {COMPILING}:\n        r = torch.rand(1)\n"
        "        return torch.where(x.sum() > 0, x + r, x - r)\n    if x.sum() > 0:\n"
        "        return x + torch.rand(1)\n    return x - torch.rand(1)\n",
    ),
    _eager(
        "in-place effect selected",
        "def target(x):\n    if x.sum() > 0:\n        x.mul_(2)\n    return x + 1\n",
        f"def target(x):\n    if {COMPILING}:\n"
        "        x.copy_(torch.where(x.sum() > 0, x * 2, x))\n"
        "    elif x.sum() > 0:\n        x.mul_(2)\n    return x + 1\n",
    ),
    Rewrite(
        "unused gradient is zeros when compiled",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)\n\n"
        "    def forward(self, x):\n        if x.sum() > 0:\n            return self.a(x)\n"
        "        return self.b(x)\n",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)\n\n"
        f"    def forward(self, x):\n        if {COMPILING}:\n"
        "            return torch.cond(x.sum() > 0, lambda: self.a(x), lambda: self.b(x))\n"
        "        if x.sum() > 0:\n            return self.a(x)\n        return self.b(x)\n",
    ),
    Rewrite(
        "buffer selected and rebound",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('base', torch.ones(1))\n        self.now = self.base\n\n"
        "    def forward(self, x):\n        if x.sum() > 0:\n            self.now = self.base * 2\n"
        "        else:\n            self.now = self.base + 0\n        return x * self.now\n",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('base', torch.ones(1))\n        self.now = self.base\n\n"
        f"    def forward(self, x):\n        if {COMPILING}:\n"
        "            self.now = torch.where(x.sum() > 0, self.base * 2, self.base + 0)\n"
        "        elif x.sum() > 0:\n            self.now = self.base * 2\n"
        "        else:\n            self.now = self.base + 0\n        return x * self.now\n",
    ),
    Rewrite(
        "value read beforehand",
        HEAD + "w = torch.ones(3)\n\n\ndef target(x):\n    if w.sum() > 0:\n        return x + 1\n"
        "    return x - 1\n",
        HEAD + "w = torch.ones(3)\nw_is_positive = (w.sum() > 0).item()\n\n\n"
        "def target(x):\n    if w_is_positive:\n        return x + 1\n    return x - 1\n",
    ),
    Rewrite(
        "dropout in both arms",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.drop = nn.Dropout(0.5)\n\n"
        "    def forward(self, x):\n        x = self.drop(x)\n        if x.sum() > 0:\n"
        "            return x * 2\n        return x\n",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.drop = nn.Dropout(0.5)\n\n"
        f"    def forward(self, x):\n        x = self.drop(x)\n        if {COMPILING}:\n"
        "            return torch.where(x.sum() > 0, x * 2, x)\n"
        "        if x.sum() > 0:\n            return x * 2\n        return x\n",
    ),
    _pair(
        "norm written out",
        "x.norm()",
        "x.sum()",
        "torch.cond(x.sum() > 0, lambda: (x * x).sum().sqrt(), lambda: x.sum())",
    ),
    _pair(
        "terms collected, compiled only",
        "x * 2 + x * 3",
        "x - 1",
        "torch.where(x.sum() > 0, x * 5, x - 1)",
    ),
    _pair(
        "half precision on both sides",
        "x.half()",
        "(x - 1).half()",
        "torch.where(x.sum() > 0, x.half(), (x - 1).half())",
    ),
    _pair(
        "dictionary of results",
        "{'a': x + 1, 'n': 1}",
        "{'a': x - 1, 'n': 1}",
        "{'a': torch.where(x.sum() > 0, x + 1, x - 1), 'n': 1}",
    ),
    _pair(
        "flags as tensors",
        "x > 0",
        "x < 0",
        "torch.where(x.sum() > 0, x > 0, x < 0)",
    ),
    _pair(
        "indices",
        "x.reshape(-1).sort().indices",
        "x.reshape(-1).sort().indices.flip(0)",
        "torch.cond(x.sum() > 0, lambda: x.reshape(-1).sort().indices.clone(),"
        " lambda: x.reshape(-1).sort().indices.flip(0))",
    ),
    _pair(
        "copies of views",
        "x.reshape(-1)[:2]",
        "x.reshape(-1)[-2:]",
        "torch.cond(x.sum() > 0, lambda: x.reshape(-1)[:2].clone(),"
        " lambda: x.reshape(-1)[-2:].clone())",
    ),
    _pair(
        "mean and variance at once",
        "x.var(unbiased=False) + x.mean()",
        "x.sum()",
        "torch.cond(x.sum() > 0, lambda: ((x - x.mean()) ** 2).mean() + x.mean(), lambda: x.sum())",
    ),
    _eager(
        "warning kept out of the graph",
        "def target(x):\n    warnings.warn('slow')\n    return x + 1\n",
        f"def target(x):\n    if not {COMPILING}:\n        warnings.warn('slow')\n    return x + 1\n",
    ),
    _eager(
        "nested branches",
        "def target(x):\n    if x.sum() > 0:\n        if x.max() > 2:\n            return x * 2\n"
        "        return x * 3\n    return x * 4\n",
        f"def target(x):\n    if {COMPILING}:\n"
        "        inner = torch.where(x.max() > 2, x * 2, x * 3) if x.numel() else x * 3\n"
        "        return torch.where(x.sum() > 0, inner, x * 4)\n"
        "    if x.sum() > 0:\n        if x.max() > 2:\n            return x * 2\n"
        "        return x * 3\n    return x * 4\n",
    ),
    _eager(
        "static half of a test kept outside",
        "def target(x):\n    if x.shape[0] > 1 and x.sum() > 0:\n        return x + 1\n"
        "    return x - 1\n",
        "def target(x):\n    if x.shape[0] > 1:\n"
        "        return torch.where(x.sum() > 0, x + 1, x - 1)\n    return x - 1\n",
    ),
    _eager(
        "number read from a tensor",
        "def target(x):\n    if x.sum().item() > 0:\n        return x + 1\n    return x - 1\n",
        "def target(x):\n    return torch.where(x.sum() > 0, x + 1, x - 1)\n",
    ),
    _eager(
        "masked sum in another order, compiled only",
        "def target(x):\n    return x[x > 0].sum()\n",
        f"def target(x):\n    if {COMPILING}:\n        return torch.where(x > 0, x, 0).sum()\n"
        "    return x[x > 0].sum()\n",
    ),
    _eager(
        "assertion with a formatted message",
        "def target(x):\n    assert (x < 100).all(), f'{x.max()} is too large'\n    return x + 1\n",
        f"def target(x):\n    if {COMPILING}:\n"
        "        torch._assert_async((x < 100).all(), 'too large')\n    else:\n"
        "        assert (x < 100).all(), f'{x.max()} is too large'\n    return x + 1\n",
    ),
    _eager(
        "flag as an argument",
        "def target(x, double: bool):\n    if double:\n        x = x * 2\n    if x.sum() > 0:\n"
        "        return x + 1\n    return x - 1\n",
        "def target(x, double: bool):\n    if double:\n        x = x * 2\n"
        "    return torch.where(x.sum() > 0, x + 1, x - 1)\n",
    ),
    _eager(
        "optional mask",
        "def target(x, mask=None):\n    if mask is not None and (mask == 0).any():\n"
        "        x = x * mask\n    return x + 1\n",
        "def target(x, mask=None):\n    if mask is not None:\n"
        f"        if {COMPILING}:\n            x = torch.where((mask == 0).any(), x * mask, x)\n"
        "        elif (mask == 0).any():\n            x = x * mask\n    return x + 1\n",
    ),
    _eager(
        "both in-place and returned",
        "def target(x):\n    x.add_(1)\n    if x.sum() > 0:\n        return x * 2\n"
        "    return x * 3\n",
        "def target(x):\n    x.add_(1)\n    return torch.where(x.sum() > 0, x * 2, x * 3)\n",
    ),
    _eager(
        "global counted in both modes",
        "calls = [0]\n\n\ndef target(x):\n    calls[0] += 1\n    if x.sum() > 0:\n"
        "        return x + 1\n    return x - 1\n",
        "calls = [0]\n\n\ndef target(x):\n    calls[0] += 1\n"
        "    return torch.where(x.sum() > 0, x + 1, x - 1)\n",
    ),
    Rewrite(
        "norm layer that counts its calls",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.norm = nn.BatchNorm1d(4)\n\n    def forward(self, x):\n"
        "        x = self.norm(x)\n        if x.sum() > 0:\n            return x * 2\n"
        "        return x * 3\n",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.norm = nn.BatchNorm1d(4)\n\n    def forward(self, x):\n"
        "        x = self.norm(x)\n        return torch.where(x.sum() > 0, x * 2, x * 3)\n",
    ),
    Rewrite(
        "embedding of tokens",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.embed = nn.Embedding(10, 4)\n\n    def forward(self, tokens):\n"
        "        h = self.embed(tokens)\n        if (tokens == 0).any():\n            h = h * 2\n"
        "        return h\n",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.embed = nn.Embedding(10, 4)\n\n    def forward(self, tokens):\n"
        "        h = self.embed(tokens)\n"
        f"        if {COMPILING}:\n"
        "            h = torch.where((tokens == 0).any(), h * 2, h)\n"
        "        elif (tokens == 0).any():\n            h = h * 2\n        return h\n",
    ),
    Rewrite(
        "history kept in a list",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.history = []\n\n    def forward(self, x):\n        if x.sum() > 0:\n"
        "            x = x * 2\n        self.history.append(x.mean())\n        return x + 1\n",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.history = []\n\n    def forward(self, x):\n"
        f"        if {COMPILING}:\n            x = torch.where(x.sum() > 0, x * 2, x)\n"
        "        elif x.sum() > 0:\n            x = x * 2\n"
        "        self.history.append(x.mean())\n        return x + 1\n",
    ),
    _module(
        "branch of training kept",
        "self.register_buffer('mean', torch.zeros(()))",
        "if self.training and x.sum() > 0:\n    self.mean = x.detach().mean()\nreturn x - self.mean",
        f"if self.training:\n    if {COMPILING}:\n"
        "        self.mean = torch.where(x.detach().sum() > 0, x.detach().mean(), self.mean)\n"
        "    elif x.sum() > 0:\n        self.mean = x.detach().mean()\nreturn x - self.mean",
    ),
    _module(
        "branch of inference kept",
        "pass",
        "if not self.training and x.sum() > 0:\n    x = x * 2\nreturn x + 1",
        "if not self.training:\n    x = torch.where(x.sum() > 0, x * 2, x)\nreturn x + 1",
    ),
    _module(
        "object set only before a cond",
        "self.kept = Kept()",
        "self.kept.value = x + 0\nreturn x + 1 if x.sum() > 0 else x - 1",
        f"self.kept.value = x + 0\nif {COMPILING}:\n"
        "    return torch.cond(x.sum() > 0, lambda: x + 1, lambda: x - 1)\n"
        "return x + 1 if x.sum() > 0 else x - 1",
    ),
    _pair(
        "single dimension squeezed",
        "x.softmax(-1).unsqueeze(0).squeeze(0)",
        "x.tanh()",
        "torch.cond(x.sum() > 0, lambda: x.softmax(-1), lambda: x.tanh())",
    ),
    Rewrite(
        "already compiled, plain cond",
        HEAD + "@torch.compile\ndef target(x):\n    if x.sum() > 0:\n        return x + 1\n"
        "    return x - 1\n",
        HEAD + "@torch.compile\ndef target(x):\n"
        "    return torch.cond(x.sum() > 0, lambda: x + 1, lambda: x - 1)\n",
    ),
)

# Right as far as it goes, and the verdict has to say how far.
PARTLY = (
    Rewrite(
        "arms of one shape only for some inputs",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('mean', torch.zeros(3))\n\n    def forward(self, x):\n"
        "        if x.sum() > 0:\n            self.mean = self.mean + x.detach()\n"
        "        else:\n            self.mean = torch.zeros_like(self.mean)\n"
        "        return x - self.mean\n",
        HEAD + "class target(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('mean', torch.zeros(3))\n\n    def forward(self, x):\n"
        f"        if {COMPILING}:\n"
        "            self.mean = torch.cond(\n"
        "                x.sum() > 0,\n                lambda m: m + x.detach(),\n"
        "                lambda m: torch.zeros_like(m),\n                (self.mean,),\n"
        "            ).detach()\n"
        "        elif x.sum() > 0:\n            self.mean = self.mean + x.detach()\n"
        "        else:\n            self.mean = torch.zeros_like(self.mean)\n"
        "        return x - self.mean\n",
        "does not compile",
    ),
)
