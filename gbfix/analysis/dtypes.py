"""The dtypes of torch by the names that programs give them, with their aliases."""

FLOATING_DTYPES = frozenset(
    f"torch.{name}" for name in "half float double bfloat16 float16 float32 float64".split()
)
INTEGER_DTYPES = frozenset(
    f"torch.{name}" for name in "uint8 int8 short int long int16 int32 int64".split()
)
