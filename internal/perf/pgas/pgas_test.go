package pgas

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/shmem"
)

// job runs body at n PEs of this process.
func job(t *testing.T, n int, body func(w *shmem.World)) {
	t.Helper()
	leak.Check(t)
	var wg sync.WaitGroup
	for pe := range n {
		wg.Go(func() {
			w, err := shmem.Open(context.Background(), shmem.PE(pe, n, t.Name()), shmem.Fabric("mem:pgas"), shmem.HeapLimit(16<<20))
			if !assert.NoError(t, err) {
				return
			}
			body(w)
			assert.NoError(t, w.Close(context.Background()))
		})
	}
	wg.Wait()
}

func TestEachItemHasAFigure(t *testing.T) {
	for pes, peer := range map[int]int{2: 1, 4: 2} {
		keys := Of(pes, Keys())
		if pes == 4 {
			keys = append(keys, RingKeys...) // with PEs that stand by
		}
		require.NotEmpty(t, keys)
		job(t, pes, func(w *shmem.World) {
			s, err := Measure(context.Background(), w, peer, keys, time.Millisecond)
			if !assert.NoError(t, err) {
				return
			}
			for _, k := range keys {
				_, ok := s[k]
				assert.Equal(t, w.PE() == 0, ok, "%s at PE %d", k, w.PE())
			}
		})
	}
}

// Each check notices a result that differs from what the item should have left.
func TestAWrongResultIsFound(t *testing.T) {
	job(t, 2, func(w *shmem.World) {
		p := &part{ctx: context.Background(), w: w, c: w.Ctx(), me: w.PE(), peer: 1}
		if !assert.NoError(t, p.alloc()) {
			return
		}
		for key, task := range tasks {
			if task.check == nil || key == "barrier" || key == "barrier4" {
				continue
			}
			p.start(task)
			p.total = 3
			p.expect.Local()[0] = 3
			wants := p.me == 1
			if key == "get1m" {
				wants = p.me == 0
			} else if key == "oneway" {
				wants = true
			}
			// The pattern of the task has not been put yet.
			if wants {
				assert.ErrorContains(t, task.check(p), "wrong", "%s at PE %d", key, p.me)
			} else {
				assert.NoError(t, task.check(p), "%s at PE %d", key, p.me)
			}
		}
		assert.NoError(t, p.barrier())
		p.start(tasks["get"])
		p.word.Local()[0] = 1
		assert.NoError(t, p.barrier())
		assert.ErrorContains(t, get(p, 2), "wrong sum")
		if p.me == 0 {
			assert.ErrorContains(t, fetchAdd(&part{c: p.c, sum: p.word, peer: 1}, 2), "wrong value")
		}
		assert.NoError(t, p.barrier())
	})
}

func TestItemsOfTheUnmapped(t *testing.T) {
	assert.Equal(t, []string{"put"}, Unmapped([]string{"copy", "put", "copypieces"}))
	assert.Equal(t, []string{"barrier4"}, Of(4, []string{"copy", "barrier4", "put"}))
	for _, it := range items {
		assert.Contains(t, tasks, it.Key)
	}
	assert.Len(t, tasks, len(items))
}

func samples(key string, ns ...float64) (list []Sample) {
	for _, v := range ns {
		list = append(list, Sample{key: v})
	}
	return list
}

func TestRatiosAreMadeWithinEachRound(t *testing.T) {
	r := NewReport(perf.Host{CPUs: 2}, 10, []Column{
		{Direct, samples("get", 1, 2, 4)},
		{Strict, samples("put", 1, 2, 4)},
		{OpenMPI, samples("get", 3, 2, 8)},
	})
	require.Len(t, r.Rows, 2)
	got := r.Rows[1]
	assert.Equal(t, "get", got.Item)
	require.Len(t, got.Results, 2, "strict has no figure")
	assert.Equal(t, perf.Spread{Median: 2, Min: 1, Max: 3}, got.Results[0].AgainstOpenMPI.Spread)
	assert.Nil(t, got.Results[1].AgainstOpenMPI)
	assert.Empty(t, r.Missed(), "twice is the aim")

	r = NewReport(perf.Host{CPUs: 2}, 10, []Column{{Direct, samples("get", 2)}, {OpenMPI, samples("get", 3)}})
	assert.Equal(t, []string{"get 8 B: 1.50x, aim 2.00x"}, r.Missed())
	var b strings.Builder
	require.NoError(t, r.Table(&b))
	assert.Contains(t, b.String(), "Below the aim: get 8 B: 1.50x, aim 2.00x.\n")
}

func TestThroughputIsOfBytesAndItsShareOfACopy(t *testing.T) {
	s := Sample{"put1m": 1 << 20, "copy": 1 << 19, "copypieces": 1 << 20}
	r := NewReport(perf.Host{}, 10, []Column{{Direct, []Sample{s}}})
	assert.Equal(t, 1.0, r.Rows[0].Results[0].Median)
	assert.Equal(t, "GB/s", r.Rows[0].Unit)
	share := r.Rows[len(r.Rows)-1]
	assert.Equal(t, 50.0, share.Results[0].Median)
	assert.Equal(t, []string{"put 1 MiB, of the best plain copy: 50.0 %, aim 95 %"}, r.Missed())
}

func TestTheRingHasACaseForEachDistance(t *testing.T) {
	var columns []Column
	for i, c := range Cases {
		assert.LessOrEqual(t, 2*c.Hops, c.PEs, "the other way round is not shorter")
		columns = append(columns, Column{c.Name, []Sample{{"putquiet": 100 * float64(i+1), "get": 1, "put1m": 1 << 20}}})
	}
	r := NewReport(perf.Host{CPUs: 2}, 10, nil)
	r.AddRing(columns)
	require.Len(t, r.Ring, len(RingKeys)+1)
	assert.Equal(t, 50.0, r.Ring[1].Results[0].Median, "300 against 200 ns")
	var b strings.Builder
	require.NoError(t, r.Table(&b))
	for _, s := range []string{"4 hops", "4.5..5.0", "more than the 2 processors here", "JIPS 2022"} {
		assert.Contains(t, b.String(), s)
	}
	assert.NotContains(t, b.String(), "direct")
}
