package shmem

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/collective"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbattach"
	"github.com/ntbnet/ntbnet/internal/testing/ntbfault"
	"github.com/ntbnet/ntbnet/internal/testing/recorder"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbfixed"
	"github.com/ntbnet/ntbnet/ntb/ntbivshmem"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// spy records what one end of a bridge does.
type spy struct {
	ntb.Device
	tape          *recorder.Tape
	rings, orders *atomic.Int64
}

func (s spy) Outbound() ntb.Window {
	w := s.Device.Outbound()
	return s.tape.Window(ntb.WriteCombining, w)
}

func (s spy) RingDoorbell(bit int) {
	s.rings.Add(1)
	s.Device.RingDoorbell(bit)
}

func (s spy) Order() {
	s.orders.Add(1)
	s.Device.Order()
}

// bridged runs body on two PEs within this process, each the owner of a node. A bridge of windows of size bytes joins
// them. wrap is for the ends of each session. options are those of each fabric.
func bridged(t *testing.T, size int, wrap func(a, b ntb.Device) (ntb.Device, ntb.Device), options [2]string, body func(w *World), own ...Option) (errs [2]error) {
	t.Helper()
	leak.Check(t)
	file := filepath.Join(t.TempDir(), "memory")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, int64(2*(size+ntbfixed.PageSize))))
	x, err := ntbivshmem.AttachFile(file, ntbivshmem.Place{Places: 2, Own: 0, Peer: 1})
	require.NoError(t, err)
	y, err := ntbivshmem.AttachFile(file, ntbivshmem.Place{Places: 2, Own: 1, Peer: 0})
	require.NoError(t, err)
	a, b := ntbattach.Ends(func() (a, b ntb.Device) {
		var both sync.WaitGroup
		both.Go(func() { a, err = x.Open(context.Background()) })
		var err2 error
		both.Go(func() { b, err2 = y.Open(context.Background()) })
		both.Wait()
		if err != nil || err2 != nil {
			panic(fmt.Sprint(err, err2))
		}
		if wrap != nil {
			a, b = wrap(a, b)
		}
		return a, b
	})
	name := fabrictest.Name(t)
	var all sync.WaitGroup
	for pe, end := range []ntb.Attachment{a, b} {
		text := fmt.Sprintf("line:%s?node=%d&nodes=2%s", name, pe+1, options[pe])
		f, err := sdp.OpenWith(text, sdp.Devices{Attach: func(sdp.Wire) (ntb.Attachment, error) { return end, nil }})
		require.NoError(t, err)
		all.Go(func() {
			defer f.Close()
			w, err := Open(context.Background(), append([]Option{PE(pe, 2, name), Fabric(text), HeapLimit(8 << 20)}, own...)...)
			if errs[pe] = err; err != nil {
				return
			}
			ended := false
			defer func() {
				if !ended { // the test has failed; the other PE must not wait for this one
					gone, cancel := context.WithCancel(context.Background())
					cancel()
					_ = w.Close(gone)
				}
			}()
			body(w)
			ended = true
			require.NoError(t, w.Close(context.Background()))
		})
	}
	all.Wait()
	require.NoError(t, x.Close())
	require.NoError(t, y.Close())
	return errs
}

var windowed = [2]string{"&puts=window", "&puts=window"}

const halfWindow = 2 << 20 // of windows of twice as much

// A put of 1 MiB is stores at its place, and a flush. Nothing is requested, nobody is rung, and nothing is read across.
func TestAPutToAWindowIsStores(t *testing.T) {
	tape, rings, orders := new(recorder.Tape), new(atomic.Int64), new(atomic.Int64)
	outbound := 0
	first := func(a, b ntb.Device) (ntb.Device, ntb.Device) {
		out := a.Outbound()
		outbound = out.Len()
		return spy{a, tape, rings, orders}, b
	}
	errs := bridged(t, 2*halfWindow, first, windowed, func(w *World) {
		ctx, c := context.Background(), w.Ctx()
		s, err := AllocZeroed[int64](ctx, w, 1<<17)
		require.NoError(t, err)
		done, err := AllocZeroed[uint64](ctx, w, 2)
		require.NoError(t, err)
		awake := func(i int) {
			for AtomicFetch(c, done, i, w.PE()) == 0 {
				runtime.Gosched()
			}
		}
		require.NoError(t, w.Team().Barrier(ctx))
		if w.PE() == 0 {
			awake(1) // PE 1 does not sleep from here on
			src := make([]int64, s.Len())
			for i := range src {
				src[i] = int64(i) + 1
			}
			place := func(off uintptr) int { // in the window, behind the work area of all PEs
				return outbound - outbound/2 + int(symheap.Shared+collective.AreaBytes(2)+off) - w.core.Heap().Objects
			}
			all := func() []int64 { return []int64{int64(requests(w, 1)), rings.Load(), orders.Load()} }
			put := []string{fmt.Sprintf("store 1048576 at %d", place(s.o.Off)), "flush"}
			clean := false
			for range 1000 { // the connection may be going to sleep meanwhile
				before := all()
				tape.Take()
				Put(c, s, src, 1)
				if clean = slices.Equal(put, tape.Take()) && slices.Equal(before, all()); clean {
					break
				}
				runtime.Gosched()
			}
			require.True(t, clean, "each put makes other stores than its own, requests, rings or waits")
			sent := requests(w, 1)
			PutSignal(c, s.Slice(1, 4), src[1:4], done, 1, SignalSet, 1)
			stores := slices.DeleteFunc(tape.Take(), func(call string) bool {
				at, _ := strconv.Atoi(call[strings.LastIndexByte(call, ' ')+1:])
				return at < outbound/2 // a flush, or a store of the connection
			})
			require.Equal(t, []string{fmt.Sprintf("store 24 at %d", place(s.o.Off)+8), fmt.Sprintf("publish64 8 at %d", place(done.o.Off))}, stores)
			require.Equal(t, sent, requests(w, 1))
			require.NoError(t, c.Quiet())
			require.Greater(t, requests(w, 1), sent, "Quiet asks")
		} else {
			P(c, done, 1, 1, 0)
			awake(0)
			for i, v := range s.Local() {
				if v != int64(i)+1 {
					t.Errorf("element %d: %d", i, v)
					break
				}
			}
		}
		require.NoError(t, w.Team().Barrier(ctx))
	})
	require.Equal(t, [2]error{}, errs)
}

// answered returns the arm word of a PE of which this one has taken notice.
func answered(w *World, pe int) uint64 {
	return reflect.ValueOf(w.core.Peer(pe)).Elem().FieldByName("rung").FieldByName("v").Uint()
}

// slow delays all stores over a bridge, in their order.
func slow(a, b ntb.Device) (ntb.Device, ntb.Device) {
	x, y := ntbfault.Pair(a, b, ntbfault.Options{Seed: 3, StoreDelayMin: time.Millisecond, StoreDelayMax: 3 * time.Millisecond})
	return x, y
}

// What Quiet has returned for is there, and a PE that sleeps is woken, also where stores take long.
func TestWindowsOfASlowBridge(t *testing.T) {
	for name, wrap := range map[string]func(a, b ntb.Device) (ntb.Device, ntb.Device){"fast": nil, "slow": slow} {
		t.Run(name, func(t *testing.T) {
			var all [2]Sym[int64]
			errs := bridged(t, 2*halfWindow, wrap, windowed, func(w *World) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				c := w.Ctx()
				s, err := AllocZeroed[int64](ctx, w, 700_000) // 5.6 MB, of which the window has 2 MiB
				require.NoError(t, err)
				sig, err := AllocZeroed[uint64](ctx, w, 2)
				require.NoError(t, err)
				all[w.PE()] = s
				require.NoError(t, w.Team().Barrier(ctx))
				src := make([]int64, s.Len())
				for i := range src {
					src[i] = int64(i)
				}
				for round := range int64(4) {
					if w.PE() == 0 {
						for i := range src {
							src[i] = round<<32 + int64(i)
						}
						for _, part := range [][2]int{{0, 1}, {7, 9}, {100, 5000}, {200_000, 600_000}, {650_000, 700_000}} {
							Put(c, s.Slice(part[0], part[1]), src[part[0]:part[1]], 1)
							require.NoError(t, c.Quiet())
							require.True(t, slices.Equal(src[part[0]:part[1]], all[1].Local()[part[0]:part[1]]), "%v is not there yet", part)
						}
						for symheap.AtomicLoad(w.core.Heap().Base, symheap.FarArmAt, 4) == answered(w, 1) {
							runtime.Gosched() // PE 1 is not about to sleep
						}
						PutSignal(c, s, src, sig, uint64(round+1), SignalSet, 1)
						for AtomicFetch(c, sig, 1, 0) != uint64(round+1) { // nothing else wakes PE 1
							require.NoError(t, ctx.Err())
							runtime.Gosched()
						}
					} else {
						_, err := SignalWaitUntil(ctx, sig, Eq, uint64(round+1))
						require.NoError(t, err)
						P(c, sig, 1, uint64(round+1), 0)
						for i, v := range s.Local() {
							if v != src[i]+round<<32 {
								require.Equal(t, src[i]+round<<32, v, "element %d", i)
							}
						}
					}
					require.NoError(t, w.Team().Barrier(ctx))
				}
			})
			require.Equal(t, [2]error{}, errs)
		})
	}
}

// A store never overtakes a request that came before it.
func TestPutsToAWindowComeBehindRequests(t *testing.T) {
	errs := bridged(t, 2*halfWindow, slow, windowed, func(w *World) {
		ctx, c := context.Background(), w.Ctx()
		s, err := AllocZeroed[uint64](ctx, w, 900_000)
		require.NoError(t, err)
		last := s.Len() - 1 // behind the window
		require.NoError(t, w.Team().Barrier(ctx))
		for round := uint64(1); round <= 30; round++ {
			if w.PE() == 0 {
				switch round % 3 {
				case 0:
					P(c, s, last, round, 1)
				case 1:
					AtomicSet(c, s, last, round, 1)
				case 2:
					old := make([]uint64, 1)
					AtomicSwapNBI(c, &old[0], s, last, round, 1)
					defer runtime.KeepAlive(old)
				}
				c.Fence()
				P(c, s, 0, round, 1)
			} else {
				require.NoError(t, WaitUntil(ctx, s, 0, Eq, round))
				require.Equal(t, round, s.Local()[last])
			}
			require.NoError(t, w.Team().Barrier(ctx))
		}
	})
	require.Equal(t, [2]error{}, errs)
}

// Everything works over a window as elsewhere.
func TestBasicsByWindow(t *testing.T) {
	errs := bridged(t, 2*halfWindow, nil, windowed, func(w *World) { basics(t, w) })
	require.Equal(t, [2]error{}, errs)
}

// Windows as small as owners can install have room for both.
func TestSmallWindows(t *testing.T) {
	for _, size := range []int{1 << 20, 2 << 20} {
		errs := bridged(t, size-4096, nil, windowed, func(w *World) { basics(t, w) })
		require.Equal(t, [2]error{}, errs)
	}
}

// Ends that differ refuse each other.
func TestOptionPutsMustBeTheSame(t *testing.T) {
	for _, tt := range []struct {
		a, b, wantA, wantB string
		limit              time.Duration
	}{
		{"&puts=window", "", "option puts: window here, requests at", "option puts: requests here, window at", 10 * time.Second}, // PE 1 waits for so long
		{"&puts=window&heap=2097152", "&puts=window&heap=1048576", "says its window has 3072 KiB, the bridge says 2048", "says its window has 2048 KiB, the bridge says 3072", time.Minute},
		{"&puts=window&heap=4194304", "&puts=window&heap=4194304", "have room for at most heap=3850240 beside", "have room for at most heap=3850240 beside", time.Minute},
	} {
		errs := bridged(t, 2*halfWindow, nil, [2]string{tt.a, tt.b}, func(*World) {}, Timeout(tt.limit), HeapLimit(1<<16))
		require.ErrorContains(t, errs[0], tt.wantA)
		require.ErrorContains(t, errs[1], tt.wantB)
		for _, err := range errs {
			require.NotContains(t, err.Error(), "\n")
		}
	}
}

func init() {
	bodies["stored"] = func(t require.TestingT, w *World) {
		stored(t, w)
		basics(t, w)
		woken(t, w)
	}
}

// woken has each PE wake each other one, which sleeps, by a put.
func woken(t require.TestingT, w *World) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c := w.Ctx()
	s, err := AllocZeroed[uint64](ctx, w, 2)
	require.NoError(t, err)
	round := uint64(0)
	for sleeper := range w.NumPEs() {
		for waker := range w.NumPEs() {
			if waker == sleeper {
				continue
			}
			round++
			if w.PE() == sleeper {
				require.NoError(t, WaitUntil(ctx, s, 0, Eq, round))
				for pe := range w.NumPEs() {
					P(c, s, 1, round, pe)
				}
			}
			if w.PE() == waker {
				for symheap.AtomicLoad(w.core.Heap().Base, symheap.FarArmAt, 4) == answered(w, sleeper) {
					require.NoError(t, ctx.Err()) // it is not about to sleep
					runtime.Gosched()
				}
				P(c, s, 0, round, sleeper)
			}
			for AtomicFetch(c, s, 1, w.PE()) < round { // awake, and without stores to the one that sleeps
				require.NoError(t, ctx.Err())
				runtime.Gosched()
			}
		}
	}
	require.NoError(t, w.Team().Barrier(ctx))
}

// stored puts at each other PE, which waits awake, and sends no request for it. Then it gets, by requests.
func stored(t require.TestingT, w *World) {
	ctx, c, n := context.Background(), w.Ctx(), w.NumPEs()
	s, err := AllocZeroed[int64](ctx, w, 100_000)
	require.NoError(t, err)
	steps, err := AllocZeroed[uint64](ctx, w, 3*n)
	require.NoError(t, err)
	small, err := AllocZeroed[uint16](ctx, w, 3)
	require.NoError(t, err)
	for d := 1; d < n; d++ {
		right, left, step := (w.PE()+d)%n, (w.PE()+n-d)%n, steps.From(3*d)
		awake := func(i int) { // waits without sleep, in which a request would wake it
			for AtomicFetch(c, step, i, w.PE()) == 0 {
				runtime.Gosched()
			}
		}
		P(c, step, 0, 1, left)
		awake(0)
		P(c, step, 1, 1, right) // answers its last sleep
		before := requests(w, right)
		src := func(pe int) []int64 {
			v := make([]int64, s.Len())
			for i := range v {
				v[i] = int64(1_000_000*(pe*n+d) + i)
			}
			return v
		}
		mine := src(w.PE())
		Put(c, s, mine, right)
		PutSignal(c, s, mine[:1], step.From(2), 1, SignalSet, right)
		require.Equal(t, before, requests(w, right))
		awake(2)
		require.True(t, slices.Equal(src(left), s.Local()))
		P(c, small, 1, 0xfff0, right)
		require.NoError(t, w.Team().Barrier(ctx))
		before = requests(w, right)
		got := make([]int64, s.Len())
		Get(c, got, s, right)
		require.True(t, slices.Equal(mine, got))
		require.Equal(t, mine[7], G(c, s, 7, right))
		require.Equal(t, uint16(0xfff0), G(c, small, 1, right))
		require.Greater(t, requests(w, right), before)
		AtomicAdd(c, s, 7, 1, right)
		require.Equal(t, mine[7]+1, G(c, s, 7, right)) // which comes behind the request
		require.NoError(t, w.Team().Barrier(ctx))
	}
}

// putsOf returns a fabric of two nodes with a file in common and further options.
func putsOf(file, options string) func(job string, pe int) string {
	return func(job string, pe int) string {
		return fmt.Sprintf("line:%s?node=%d&nodes=2&share=1&puts=window%s&%s=file:%s", job, pe%2+1, options, []string{"right", "left"}[pe%2], file)
	}
}

// windowHeap is as much for heaps as the windows of putsOf, of 32 MiB, leave beside a link.
const windowHeap = "&heap=33206272"

// On each node one process owns the links. Its PE puts by the window, and all other PEs by requests.
func TestProcessesPutByWindow(t *testing.T) {
	for _, n := range []int{2, 4} {
		t.Run(strconv.Itoa(n), func(t *testing.T) { processes(t, "basics", n, "mapped", putsOf(memory(t), "")) })
	}
}

// Option heap says how much of the windows is for heaps. All of a heap is there.
func TestHeapsInWindowsFit(t *testing.T) {
	processes(t, "stored", 2, "mapped", putsOf(memory(t), windowHeap))
	t.Setenv("SHMEM_SYMMETRIC_SIZE", "32m")
	for _, cmd := range start(t, "open", 2, "mapped", putsOf(memory(t), windowHeap)) {
		require.Error(t, cmd.Wait())
		require.Contains(t, cmd.Stderr.(*bytes.Buffer).String(), "with heap=33206272 of the fabric there is room for ")
	}
}

// A PE is killed while both put. The other ends, and the next job finds zeros in the same windows.
func TestTheNextJobSeesZerosInItsWindows(t *testing.T) {
	t.Run("half", func(t *testing.T) {
		t.Setenv("SHMEM_SYMMETRIC_SIZE", "20m") // of which the window has 16
		theNextJobSeesZeros(t, putsOf(memory(t), ""))
	})
	t.Run("heap", func(t *testing.T) { theNextJobSeesZeros(t, putsOf(memory(t), windowHeap)) })
}

func theNextJobSeesZeros(t *testing.T, fabric func(job string, pe int) string) {
	mark := filepath.Join(t.TempDir(), "pe")
	t.Setenv(envMark, mark)
	all := start(t, "puts", 2, "mapped", fabric)
	for pe := range all {
		require.Eventually(t, func() bool { _, err := os.Stat(mark + strconv.Itoa(pe)); return err == nil }, time.Minute, time.Millisecond)
	}
	require.NoError(t, all[1].Process.Kill())
	require.Error(t, all[1].Wait())
	_ = all[0].Wait()
	require.Contains(t, all[0].Stderr.(*bytes.Buffer).String(), "PE 1 has ended")
	processes(t, "zeros", 2, "mapped", fabric)
}
