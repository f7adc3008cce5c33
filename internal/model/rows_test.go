package model

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/testing/ntbtime"
	"github.com/ntbnet/ntbnet/shmem"
)

// The beds. Of the thesis' the time one way and that of an interrupt are fitted to its round trips of 1 byte; the others are what the
// generation of PCIe says, with times that are common.
var (
	gen2x4  = ntbtime.Link{Rate: 2e9, Header: 24, Payload: 128, OneWay: 710, Combining: true, Queue: 2048, Interrupt: 15200, RemoteCPU: true}
	gen3x8  = ntbtime.Link{Rate: 7.88e9, Header: 24, Payload: 256, OneWay: 500, Combining: true, Queue: 4096, Interrupt: 5000, RemoteCPU: true}
	gen4x16 = ntbtime.Link{Rate: 31.5e9, Header: 24, Payload: 256, OneWay: 500, Combining: true, Queue: 8192, Interrupt: 5000, RemoteCPU: true}
)

// row is a figure. Less is better of times and sleeps, and else more.
type row struct {
	name, unit string
	value      float64
}

func (r row) String() string { return fmt.Sprintf("%-74s %10.2f %s", r.name, r.value, r.unit) }

// worse returns how much worse r is than a row of before, as a part of that.
func (r row) worse(before row) float64 {
	d := (r.value - before.value) / before.value
	if r.unit != "µs" && r.unit != "a request" {
		d = -d
	}
	return d
}

// rows collects figures.
type rows struct {
	t   *testing.T
	all []row
}

func (r *rows) add(value float64, unit, name string, args ...any) {
	r.all = append(r.all, row{fmt.Sprintf(name, args...), unit, value})
}

// spins are the ways to wait, by the value of option spin.
var spins = []struct{ name, spin string }{{"polling", "50us"}, {"parked", "0"}}

const mega = 1 << 20

func (r *rows) roundTrips(name string, b bed) {
	b.nodes, b.window, b.poll = 2, 64*mega, fine
	for _, s := range spins {
		b.spin = s.spin
		open(r.t, b, func(w *world) {
			a, b := w.connect(1, 2)
			for _, size := range []int{1, 64, 4 << 10} {
				r.add(w.roundTrip(a, b, size, 50), "µs", "%s, %s: %d B there and back", name, s.name, size)
			}
			r.add(w.roundTrip(a, b, 64<<10, 10), "µs", "%s, %s: 64 KiB there and back", name, s.name)
		})
	}
}

func (r *rows) streams(name string, link ntbtime.Link, late time.Duration) {
	for _, s := range spins {
		for _, window := range []int{64, 2, 1} {
			open(r.t, bed{link: link, nodes: 2, window: window * mega, spin: s.spin, poll: rough, late: late}, func(w *world) {
				a, b := w.connect(1, 2)
				if first := mega / w.stream(a, b, 64<<10, mega) * 1e6; window == 64 {
					r.add(first, "µs", "%s, %s: first MiB of the first connection", name, s.name)
				}
				w.stream(a, b, 64<<10, 4*mega)
				r.add(100*w.stream(a, b, 64<<10, 16*mega)/link.Posted(), "%", "%s, %s: stream, window of %d MiB", name, s.name, window)
			})
		}
	}
}

// messages are streams of small ones.
func (r *rows) messages(link ntbtime.Link) {
	for _, size := range []int{8, 24, 56} {
		open(r.t, bed{link: link, nodes: 2, window: 64 * mega, spin: "50us", poll: fine}, func(w *world) {
			a, b := w.connect(1, 2)
			w.stream(a, b, size, 4000*size)
			r.add(w.stream(a, b, size, 2000*size)/float64(size)/1e6, "million/s", "messages of %d B", size)
		})
	}
}

func (r *rows) hops() {
	for _, s := range spins {
		open(r.t, bed{link: gen3x8, nodes: 5, window: 64 * mega, spin: s.spin, poll: fine}, func(w *world) {
			for hops := 1; hops <= 4; hops++ {
				a, b := w.connect(1, 1+hops)
				r.add(w.roundTrip(a, b, 1, 20), "µs", "%s, hops: %d: 1 B there and back", s.name, hops)
			}
		})
		open(r.t, bed{link: gen3x8, nodes: 5, window: 64 * mega, spin: s.spin, poll: rough}, func(w *world) {
			for hops := 1; hops <= 4; hops++ {
				a, b := w.connect(1, 1+hops)
				r.add(w.roundTrip(a, b, mega, 10)/2, "µs", "%s, hops: %d: 1 MiB one way", s.name, hops)
				r.add(100*w.stream(a, b, 64<<10, 16*mega)/gen3x8.Posted(), "%", "%s, hops: %d: stream", s.name, hops)
				a.Close()
				b.Close()
			}
		})
	}
}

// losses measures connections over hops of which a relay drops each hundredth frame, five in a stream. The word that makes a frame
// valid has its kind in bits 32 to 39 and the hops that it may go in the upper 16 (docs/protocol/hops.md).
func (r *rows) losses() {
	const data, hops, one, most, trips = 1, 48, 100, 500, 100
	for _, s := range spins {
		open(r.t, bed{link: gen3x8, nodes: 3, window: 64 * mega, spin: s.spin, poll: rough}, func(w *world) {
			a, b := w.connect(1, 3)
			frames := 0
			w.rights[1].SetAlter(func(v uint64) uint64 {
				if uint8(v>>32) == data && v>>hops > 1 {
					if frames++; frames%one == 0 && frames <= most {
						return v&(1<<hops-1) | 1<<hops
					}
				}
				return v
			})
			begin := time.Now()
			w.roundTrip(a, b, 4<<10, trips)
			r.add(float64(time.Since(begin).Microseconds())/trips, "µs", "%s, hops: 2, 1 %% of frames lost: 4096 B there and back, mean", s.name)
			synctest.Wait()
			frames = 0
			r.add(w.stream(a, b, 64<<10, 24*mega)/1e6, "MB/s", "%s, hops: 2, 1 %% of frames lost: stream", s.name)
			if frames < most {
				r.t.Errorf("%d frames were seen", frames)
			}
		})
	}
}

// requests measures how waits end where clients sleep between requests of 64 B: each of 8 connections sends so many a second,
// whatever answers take.
func (r *rows) requests(name string, b bed) {
	const connections, each = 8, 25
	b.nodes, b.window, b.poll, b.spin = 2, 64*mega, rough, "50us"
	for _, rate := range []time.Duration{1000, 50_000} {
		open(r.t, b, func(w *world) {
			var trips []time.Duration
			var mu sync.Mutex
			var all sync.WaitGroup
			sleeps, begin := uint64(0), time.Now().Add(10*time.Millisecond)
			for i := range connections {
				a, b := w.connect(1, 2)
				all.Go(func() { io.Copy(struct{ io.Writer }{b}, struct{ io.Reader }{b}) })
				all.Go(func() {
					defer a.Close()
					was, was2 := a.Stats(), b.Stats()
					next := begin.Add(time.Duration(i) * time.Second / rate / connections)
					for p := make([]byte, 64); len(p) > 0 && next.Before(begin.Add(each*time.Second/rate)); next = next.Add(time.Second / rate) {
						time.Sleep(time.Until(next))
						_, err := a.Write(p)
						if err == nil {
							_, err = io.ReadFull(a, p)
						}
						if w.fails(err) {
							return
						}
						mu.Lock()
						trips = append(trips, time.Since(next))
						mu.Unlock()
					}
					mu.Lock()
					sleeps += a.Stats().ReadParks - was.ReadParks + b.Stats().ReadParks - was2.ReadParks
					mu.Unlock()
				})
			}
			all.Wait()
			slices.Sort(trips)
			r.add(float64(trips[len(trips)/2])/1e3, "µs", "%s, 8 connections with %d requests/s each: median", name, rate)
			r.add(float64(sleeps)/float64(len(trips)), "a request", "%s, 8 connections with %d requests/s each: sleeps", name, rate)
		})
	}
}

// pgas measures SHMEM by requests.
func (r *rows) pgas() {
	const rounds = 10
	for _, s := range spins {
		for _, poll := range []time.Duration{fine, rough} {
			open(r.t, bed{link: gen3x8, nodes: 4, window: 16 * mega, spin: s.spin, poll: poll}, func(w *world) {
				var pes sync.WaitGroup
				for pe := range w.nodes {
					pes.Go(func() {
						if err := r.pe(w, s.name, pe, rounds); err != nil {
							w.t.Error(err)
						}
					})
				}
				pes.Wait()
			})
		}
	}
}

func (r *rows) pe(w *world, spin string, pe, rounds int) error {
	ctx := context.Background()
	world, err := shmem.Open(ctx, shmem.PE(pe, w.nodes, "job"), shmem.Fabric(w.spec(pe+1)), shmem.Strict(), shmem.HeapLimit(8*mega))
	if err != nil {
		return err
	}
	sym, err := shmem.Alloc[byte](ctx, world, mega)
	if err != nil {
		return err
	}
	if err := world.Team().Barrier(ctx); err != nil {
		return err
	}
	mean := func(rounds int, f func()) float64 {
		begin := time.Now()
		for range rounds {
			f()
		}
		world.Ctx().Quiet()
		return float64(time.Since(begin)) / 1e3 / float64(rounds)
	}
	each := func(f func()) float64 { return mean(rounds, f) }
	// At which polls the first and the last one end is chance, of which each has a hundredth.
	barrier := mean(100, func() { err = world.Team().Barrier(ctx) })
	if err != nil {
		return err
	}
	p := make([]byte, mega)
	for to := 1; pe == 0 && to < w.nodes; to++ {
		if w.poll == fine {
			each(func() { sym.Put(p[:8], to) })
			r.add(each(func() { sym.Put(p[:8], to); world.Ctx().Quiet() }), "µs", "%s, hops: %d: put of 8 B, and quiet", spin, to)
			continue
		}
		each(func() { sym.Put(p, to) })
		r.add(100*mega/each(func() { sym.Put(p, to) })*1e6/gen3x8.Posted(), "%", "%s, hops: %d: put of 1 MiB", spin, to)
		r.add(100*mega/each(func() { sym.Get(p, to) })*1e6/gen3x8.Posted(), "%", "%s, hops: %d: get of 1 MiB", spin, to)
	}
	if pe == 0 && w.poll == fine {
		r.add(barrier, "µs", "%s: barrier of %d PEs", spin, w.nodes)
	}
	if err := world.Team().Barrier(ctx); err != nil {
		return err
	}
	return world.Close(ctx)
}

// measure measures all rows.
func (r *rows) measure() {
	quiet(r.t)
	for _, b := range []struct {
		name string
		link ntbtime.Link
	}{{"Gen2 x4", gen2x4}, {"Gen3 x8", gen3x8}, {"Gen4 x16", gen4x16}} {
		r.roundTrips(b.name, bed{link: b.link})
		r.streams(b.name, b.link, 0)
	}
	r.roundTrips("Gen3 x8, 300 ns a call, copies at 8 GB/s", bed{link: gen3x8, call: 300, copy: 0.125})
	near := gen3x8
	near.RemoteCPU = false
	r.requests("Gen3 x8, 300 ns a call", bed{link: gen3x8, call: 300, copy: 0.125})
	r.requests("the same on one machine", bed{link: near, call: 300, copy: 0.125})
	r.messages(gen3x8)
	r.hops()
	r.losses()
	r.pgas()
}

// quiet has nothing but the bed's own goroutines run until the test ends.
func quiet(t *testing.T) {
	if lock.Checked {
		t.Skip("locks are checked, and hold the clock up")
	}
	level := slog.SetLogLoggerLevel(slog.LevelError)
	percent := debug.SetGCPercent(-1) // goroutines of the collector change which one runs next
	t.Cleanup(func() {
		slog.SetLogLoggerLevel(level)
		debug.SetGCPercent(percent)
	})
}

const (
	rowsFile       = "testdata/rows.txt"
	updateVariable = "NTBNET_UPDATE"
)

// tolerance returns by what part of it a row may change. Two runs differ by a third of that at most, or where frames get lost by a
// delayed acknowledgement or two.
func (r row) tolerance() float64 {
	if strings.Contains(r.name, "lost") {
		return 0.05
	}
	return 0.01
}

// TestRows compares all rows with those of the file, which NTBNET_UPDATE=1 writes. What is better has to be written too, so that it
// is kept.
func TestRows(t *testing.T) {
	r := &rows{t: t}
	r.measure()
	if os.Getenv(updateVariable) != "" {
		var text bytes.Buffer
		for _, r := range r.all {
			fmt.Fprintln(&text, r)
		}
		if err := os.WriteFile(rowsFile, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	was, err := readRows()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range r.all {
		b, ok := was[r.name]
		switch delete(was, r.name); {
		case !ok:
			t.Errorf("%v\n\tis not in %s: write that by %s=1", r, rowsFile, updateVariable)
		case r.worse(b) > r.tolerance():
			t.Errorf("%v\n\twas %.2f", r, b.value)
		case r.worse(b) < -r.tolerance():
			t.Errorf("%v\n\twas %.2f: write %s by %s=1", r, b.value, rowsFile, updateVariable)
		default:
			t.Log(b)
		}
	}
	for _, b := range was {
		t.Errorf("%v\n\tis in %s and was not measured", b, rowsFile)
	}
}

// Faults of a link make some row worse than the file allows: a packet more for each message, a doorbell that is lost now and then,
// credit that comes late by a quarter of a queue.
func TestRowsFindFaults(t *testing.T) {
	quiet(t)
	was, err := readRows()
	if err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(link *ntbtime.Link, late *time.Duration){
		"one more packet": func(link *ntbtime.Link, _ *time.Duration) { link.ExtraPackets = 1 },
		"lost doorbells":  func(link *ntbtime.Link, _ *time.Duration) { link.LoseBell = 50 },
		"late credit":     func(link *ntbtime.Link, late *time.Duration) { *late = time.Duration(mega / 4 / link.Posted() * 1e9) },
		"none":            func(*ntbtime.Link, *time.Duration) {},
	} {
		t.Run(name, func(t *testing.T) {
			r, link, late := &rows{t: t}, gen3x8, time.Duration(0)
			plant(&link, &late)
			r.messages(link)
			r.roundTrips("Gen3 x8", bed{link: link})
			r.streams("Gen3 x8", link, late)
			worse := 0
			for _, r := range r.all {
				if r.worse(was[r.name]) > r.tolerance() {
					t.Logf("%v\n\twas %.2f", r, was[r.name].value)
					worse++
				}
			}
			if (worse > 0) != (name != "none") {
				t.Errorf("%d rows are worse", worse)
			}
		})
	}
}

func readRows() (map[string]row, error) {
	f, err := os.Open(rowsFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[string]row{}
	s := bufio.NewScanner(f)
	for s.Scan() {
		name, rest, _ := strings.Cut(s.Text(), "  ")
		value, unit, _ := strings.Cut(strings.TrimSpace(rest), " ")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, err
		}
		all[name] = row{name, unit, v}
	}
	return all, s.Err()
}

// TestMany has connections share a link.
func TestMany(t *testing.T) {
	quiet(t)
	const n = 64
	for i, want := range [][2]float64{{98, 97}, {95, 95}} { // of windows of 2 and 1 MiB
		for j, window := range []int{2, 1} {
			s := spins[i]
			var rates, shares []float64
			for len(rates) == 0 || len(rates) < 3 && (rates[0] < want[j] || shares[0] < 90) { // the order of goroutines is worth 1 %
				open(t, bed{link: gen3x8, nodes: 2, window: window * mega, spin: s.spin, poll: 5 * rough}, func(w *world) {
					rate, slowest := w.many(n)
					t.Logf("%s, %d connections, window of %d MiB: %.1f %%, the slowest has %.0f %% of its share", s.name, n, window, rate, slowest)
					rates, shares = append(rates, rate), append(shares, slowest)
				})
			}
			slices.Sort(rates)
			slices.Sort(shares)
			if m := len(rates) / 2; rates[m] < want[j] || shares[m] < 90 {
				t.Errorf("medians %.1f and %.0f, want %g and 90", rates[m], shares[m], want[j])
			}
		}
	}
}

// many has n connections stream at the same time. It returns percents: of the rate that is possible, and what the slowest has of an
// equal share.
func (w *world) many(n int) (rate, slowest float64) {
	const lasts = 5 * time.Millisecond
	ends := make([][2]*conn, n)
	for i := range ends {
		ends[i][0], ends[i][1] = w.connect(1, 2)
	}
	begin := time.Now().Add(lasts)
	end := begin.Add(lasts)
	read := make([]int, n)
	var all sync.WaitGroup
	for i, c := range ends {
		all.Go(func() {
			for p := make([]byte, 16<<10); time.Now().Before(end); {
				if _, err := c[0].Write(p); w.fails(err) {
					return
				}
			}
			w.fails(c[0].CloseWrite())
		})
		all.Go(func() {
			for p := make([]byte, 64<<10); ; {
				k, err := c[1].Read(p)
				if now := time.Now(); now.After(begin) && now.Before(end) {
					read[i] += k
				}
				if err == io.EOF || w.fails(err) {
					return
				}
			}
		})
	}
	all.Wait()
	sum := 0
	for _, k := range read {
		sum += k
	}
	return 100 * float64(sum) / lasts.Seconds() / w.link.Posted(), 100 * float64(slices.Min(read)*n) / float64(sum)
}
