"""Small kernels and plans for the tests of the runtime."""

from dataclasses import replace

from cuteblas._dtypes import dtype
from cuteblas.codegen.kernel import GeneratedKernel, Param, TensorMapSpec
from cuteblas.codegen.values import Use
from cuteblas.planning.plan import Argument, Launch, Plan
from cuteblas.planning.problem import H200, CopyProblem, GemmProblem, Operand

F32, I32, I64 = dtype("float32"), dtype("int32"), dtype("int64")

OPERAND = Operand("float32", (1, 1))
GEMM = GemmProblem(1, 1, 1, OPERAND, OPERAND, OPERAND)
COPY = CopyProblem((1,), (1,), (1,), 4)

# c[i] = alpha * a[i] * b[i] + beta * c[i]
MULTIPLY = GeneratedKernel(
    "multiply",
    """
extern "C" __global__ void __launch_bounds__(128)
multiply(float const* a, float const* b, float* c, int n, float alpha, float beta) {
  int const i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) c[i] = alpha * a[i] * b[i] + (beta == 0.f ? 0.f : beta * c[i]);
}
""",
    (
        Param("a", "pointer", F32),
        Param("b", "pointer", F32),
        Param("c", "pointer", F32, const=False),
        Param("n", "scalar", I32),
        Param("alpha", "scalar", F32),
        Param("beta", "scalar", F32)
    ),
    threads=128
)

# the same; may begin while the launch before it still runs, and waits for that one to end
FOLLOWING = replace(
    MULTIPLY,
    name="following",
    arch="sm_90",
    body=MULTIPLY.body.replace("multiply(", "following(").replace(
        "  int const i",
        "  cb::next_launch_may_begin();\n  cb::wait_for_launch_before();\n  int const i"
    ),
    uses=frozenset({Use("next_launch_may_begin"), Use("wait_for_launch_before")})
)

# dst[i] = src[n - 1 - i] through `shared` bytes of dynamic shared memory, of which the last float
# of each thread's share is used
REVERSE_SHARED_BYTES = 100 * 1024
REVERSE = GeneratedKernel(
    "reverse",
    """
extern "C" __global__ void __launch_bounds__(256) reverse(float const* src, float* dst) {
  extern __shared__ float memory[];
  memory[threadIdx.x * 100 + 99] = src[threadIdx.x];
  __syncthreads();
  dst[threadIdx.x] = memory[(255 - threadIdx.x) * 100 + 99];
}
""",
    (Param("src", "pointer", F32), Param("dst", "pointer", F32, const=False)),
    threads=256, shared_bytes=REVERSE_SHARED_BYTES)

# dst[i] = rank of block i in its cluster
CLUSTER_RANK = GeneratedKernel(
    "cluster_rank",
    """
extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster_rank(int const* src, int* dst) {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) dst[blockIdx.x] = rank;
}
""",
    (Param("src", "pointer", I32), Param("dst", "pointer", I32, const=False)),
    threads=32, arch="sm_90", cluster=(2, 1, 1))

# dst = the 8 x 32 box of src whose corner is (column, row)
BOX = TensorMapSpec(F32, shape=(100, 50), strides=(416,), box=(32, 8))
LOAD_BOX = GeneratedKernel(
    "load_box",
    """
extern "C" __global__ void __launch_bounds__(128)
load_box(const __grid_constant__ cb::TensorMap map, float* dst, int column, int row) {
  __shared__ alignas(128) float tile[8 * 32];
  __shared__ alignas(8) unsigned long long barrier;
  if (threadIdx.x == 0) {
    cb::mbarrier_init(&barrier, 1);
    cb::mbarrier_init_fence();
    cb::mbarrier_arrive_expect_tx(&barrier, sizeof(tile));
    cb::tma_load(tile, &map, &barrier, column, row);
  }
  __syncthreads();
  cb::mbarrier_wait(&barrier, 0);
  for (int i = threadIdx.x; i < 8 * 32; i += 128) dst[i] = tile[i];
}
""",
    (
        Param("map", "tensor_map", F32),
        Param("dst", "pointer", F32, const=False),
        Param("column", "scalar", I32),
        Param("row", "scalar", I32)
    ),
    threads=128,
    arch="sm_90a",
    uses=frozenset(
        map(
            Use,
            (
                "mbarrier_init",
                "mbarrier_init_fence",
                "mbarrier_arrive_expect_tx",
                "tma_load",
                "mbarrier_wait"
            )
        )
    )
)


def multiply_plan(n, alpha=None, beta=None, launches=1, workspace_bytes=0):
    """A plan of :data:`MULTIPLY`; ``alpha`` and ``beta`` of ``None`` come from the call."""
    def scalar(role, value):
        return Argument(role) if value is None else Argument(value=value)
    launch = Launch(MULTIPLY, (-(-n // 128), 1, 1),
                    (Argument("a"), Argument("b"), Argument("c"), Argument(value=n),
                     scalar("alpha", alpha), scalar("beta", beta)))
    return Plan(GEMM, H200, "test", None, (launch,) * launches, workspace_bytes)


def following_plan(n, launches):
    """The same of :data:`FOLLOWING`, each launch beginning while the one before it runs."""
    (step,) = multiply_plan(n).launches
    return replace(multiply_plan(n), launches=(replace(step, kernel=FOLLOWING),) * launches)


def copy_plan(kernel, grid, arguments):
    """A plan of one launch between a source and a destination."""
    return Plan(COPY, H200, "test", None, (Launch(kernel, grid, tuple(arguments)),))
