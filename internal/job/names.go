package job

import "strings"

// Names of calls in errors, as programs in Go and in C know them.

var goCalls = [numCalls]string{
	callAlloc: "Alloc", callFree: "Free", callSync: "Sync", callBarrier: "Barrier",
	callSplitStrided: "SplitStrided", callSplit2D: "Split2D", callDestroy: "Destroy",
	callBcast: "Bcast", callAllReduce: "AllReduce",
	callBroadcast: "Broadcast", callCollect: "Collect", callFCollect: "FCollect",
	callAlltoAll: "AlltoAll", callAlltoAllS: "AlltoAllS",
	AndReduce: "AndReduce", OrReduce: "OrReduce", XorReduce: "XorReduce",
	MinReduce: "MinReduce", MaxReduce: "MaxReduce",
	SumReduce: "SumReduce", ProdReduce: "ProdReduce",
	SumInscan: "SumInscan", SumExscan: "SumExscan",
}

var cCalls = [numCalls]string{
	callAlloc: "shmem_malloc", callFree: "shmem_free", callSync: "shmem_team_sync", callBarrier: "shmem_barrier_all",
	callSplitStrided: "shmem_team_split_strided", callSplit2D: "shmem_team_split_2d", callDestroy: "shmem_team_destroy",
	callBroadcast: "shmem_broadcast", callCollect: "shmem_collect", callFCollect: "shmem_fcollect",
	callAlltoAll: "shmem_alltoall", callAlltoAllS: "shmem_alltoalls",
	AndReduce: "shmem_and_reduce", OrReduce: "shmem_or_reduce", XorReduce: "shmem_xor_reduce",
	MinReduce: "shmem_min_reduce", MaxReduce: "shmem_max_reduce",
	SumReduce: "shmem_sum_reduce", ProdReduce: "shmem_prod_reduce",
	SumInscan: "shmem_sum_inscan", SumExscan: "shmem_sum_exscan",
}

func (w *World) callNames() *[numCalls]string {
	if w.opts.CNames {
		return &cCalls
	}
	return &goCalls
}

// cOps makes the name in C of the name of an operation in Go.
var cOps = strings.NewReplacer("-and-", "_", "-", "_", " ", "_")

// opName returns the name of an operation.
func (w *World) opName(op string) string {
	if w.opts.CNames {
		return "shmem_" + cOps.Replace(op)
	}
	return op
}
