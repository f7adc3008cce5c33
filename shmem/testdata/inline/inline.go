// Package inline calls operations of one element, for TestOneElementIsOneCall.
package inline

import "github.com/ntbnet/ntbnet/shmem"

func Calls(c *shmem.Ctx, s shmem.Sym[int64], b []int64, pe int) int64 {
	shmem.Put(c, s, b, pe)
	shmem.Get(c, b, s, pe)
	shmem.P(c, s, 0, b[0], pe)
	return shmem.AtomicFetchAdd(c, s, 0, 1, pe)
}
