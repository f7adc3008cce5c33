package shmem

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testSeed is SHMEM_TEST_SEED, or random. PEs that are processes get it from their
// parent.
var testSeed = func() uint64 {
	const name = "SHMEM_TEST_SEED"
	v, err := strconv.ParseUint(os.Getenv(name), 10, 64)
	if err != nil {
		v = rand.Uint64()
		os.Setenv(name, strconv.FormatUint(v, 10))
	}
	return v
}()

// What the engine does differently in larger teams, and how many messages it has under way.
const (
	flatTeam     = 8
	messageSlots = 8
)

// value returns a number of any type. Sums and products of floating-point ones depend
// on the order.
func value[T Elem](pe, i, salt int) T {
	h := uint64(pe+1)*0x9e3779b97f4a7c15 ^ uint64(i+1)*0xbf58476d1ce4e5b9 ^ uint64(salt)*0x94d049bb133111eb
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 32
	var v T
	switch p := any(&v).(type) {
	case *float32:
		*p = float32(int32(h)) / 1000
	case *float64:
		*p = float64(int64(h)) / 1000
	case *complex64:
		*p = complex(float32(int16(h))/7, float32(int16(h>>16))/7)
	case *complex128:
		*p = complex(float64(int32(h))/7, float64(int32(h>>32))/7)
	default:
		for range 8 { // integers use all their bits
			v = v*31*8 + small[T](int(h&0x7f))
			h >>= 8
		}
	}
	return v
}

// small returns a number that every type can hold.
func small[T Elem](n int) (v T) {
	for ; n > 0; n-- {
		v++
	}
	return v
}

func values[T Elem](pe, n, salt int) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = value[T](pe, i, salt)
	}
	return s
}

// oracle knows the src of all PEs of a team. Its methods return what dst of PE me
// must be.
type oracle[T Elem] struct {
	src [][]T
	me  int
}

func (o oracle[T]) collect() (all []T) {
	for _, s := range o.src {
		all = append(all, s...)
	}
	return all
}

func (o oracle[T]) alltoall(n, dstStride, srcStride int, was []T) []T {
	all := append([]T(nil), was...)
	for pe, s := range o.src {
		for i := range n {
			all[(pe*n+i)*dstStride] = s[(o.me*n+i)*srcStride]
		}
	}
	return all
}

func (o oracle[T]) reduce(op func(a, b T) T) []T {
	all := append([]T(nil), o.src[0]...)
	for _, s := range o.src[1:] {
		for i := range all {
			all[i] = op(all[i], s[i])
		}
	}
	return all
}

// trial tries the collectives with one type.
type trial[T Elem] struct {
	t      require.TestingT
	team   *Team
	a, b   Sym[T]
	rng    *rand.Rand // yields the same numbers at all PEs
	mine   *rand.Rand // for pauses; its numbers differ from PE to PE
	salt   int
	pauses bool
	label  string
}

func (x *trial[T]) fill(s Sym[T], n int) oracle[T] {
	x.salt++
	o := oracle[T]{me: x.team.MyPE()}
	for pe := range x.team.NPEs() {
		o.src = append(o.src, values[T](pe, n, x.salt))
	}
	copy(s.Local(), o.src[o.me])
	x.pause()
	return o
}

func (x *trial[T]) pause() {
	if x.pauses && x.mine.IntN(4) == 0 {
		time.Sleep(time.Duration(x.mine.IntN(200)) * time.Microsecond)
	}
}

func (x *trial[T]) check(want []T, s Sym[T], err error, what string, n int) {
	x.same(want, s.Local()[:len(want)], err, what, n)
}

// same checks what is in memory after a call.
func (x *trial[T]) same(want, got []T, err error, what string, n int) {
	require.NoError(x.t, err, "%s of %d, seed %d", what, n, testSeed)
	for i := range want {
		if got[i] != want[i] && (got[i] == got[i] || want[i] == want[i]) { // NaNs count as equal
			require.Equal(x.t, want[i], got[i], "%s %s of %d: element %d at PE %d of %d, seed %d", x.label, what, n, i, x.team.MyPE(), x.team.NPEs(), testSeed)
		}
	}
}

// moves tries all collectives that do not calculate.
func (x *trial[T]) moves(n int) {
	ctx, npes := context.Background(), x.team.NPEs()
	root := x.rng.IntN(npes)
	o := x.fill(x.a, n)
	x.check(o.src[root], x.b, Broadcast(ctx, x.team, x.b, x.a.Slice(0, n), root), "broadcast", n)
	root = x.rng.IntN(npes)
	o = x.fill(x.b, n)
	x.check(o.src[root], x.b, Broadcast(ctx, x.team, x.b, x.b.Slice(0, n), root), "broadcast in place", n)
	root = x.rng.IntN(npes)
	o = x.fill(x.a, n)
	buf := append([]T(nil), o.src[o.me]...)
	err := Bcast(ctx, x.team, buf, root)
	x.same(o.src[root], buf, err, "bcast", n)
	o = x.fill(x.a, n)
	x.check(o.collect(), x.b, FCollect(ctx, x.team, x.b, x.a.Slice(0, n)), "fcollect", n)

	o = x.fill(x.a, n)
	for pe := range o.src { // lengths differ, and some are 0
		o.src[pe] = o.src[pe][:x.rng.IntN(n+1)]
	}
	x.check(o.collect(), x.b, Collect(ctx, x.team, x.b, x.a.Slice(0, len(o.src[o.me]))), "collect", n)

	o = x.fill(x.a, n*npes)
	was := append([]T(nil), x.b.Local()[:n*npes]...)
	want := o.alltoall(n, 1, 1, was)
	x.check(want, x.b, AlltoAll(ctx, x.team, x.b, x.a.Slice(0, n*x.team.NPEs())), "alltoall", n)

	ds, ss := 1+x.rng.IntN(3), 1+x.rng.IntN(3)
	k := n / 3
	o = x.fill(x.a, 3*k*npes)
	was = append([]T(nil), x.b.Local()[:3*k*npes]...)
	want = o.alltoall(k, ds, ss, was)
	x.check(want, x.b, AlltoAllS(ctx, x.team, x.b, x.a.Slice(0, k*x.team.NPEs()*ss), ds, ss), "alltoalls", k)
}

// reduction is one of the seven reductions.
type reduction[T Elem] struct {
	name string
	call func(ctx context.Context, t *Team, dst, src Sym[T]) error
	on   Op[T] // the same, for AllReduce
	op   func(a, b T) T
}

func arithmetic[T Elem]() []reduction[T] {
	return []reduction[T]{
		{"sum", SumReduce[T], Sum[T], func(a, b T) T { return a + b }},
		{"prod", ProdReduce[T], Prod[T], func(a, b T) T { return a * b }},
	}
}

func ordered[T Real]() []reduction[T] {
	return append(arithmetic[T](),
		reduction[T]{"min", MinReduce[T], Min[T], func(a, b T) T { return min(a, b) }},
		reduction[T]{"max", MaxReduce[T], Max[T], func(a, b T) T { return max(a, b) }})
}

func bitwiseToo[T Integer]() []reduction[T] {
	return append(ordered[T](),
		reduction[T]{"and", AndReduce[T], And[T], func(a, b T) T { return a & b }},
		reduction[T]{"or", OrReduce[T], Or[T], func(a, b T) T { return a | b }},
		reduction[T]{"xor", XorReduce[T], Xor[T], func(a, b T) T { return a ^ b }})
}

func (x *trial[T]) reductions(all []reduction[T], n int) {
	ctx := context.Background()
	for _, r := range all {
		dst := x.b
		if x.rng.IntN(2) == 0 {
			dst = x.a
		}
		o := x.fill(x.a, n)
		x.check(o.reduce(r.op), dst, r.call(ctx, x.team, dst, x.a.Slice(0, n)), r.name, n)
		buf := append([]T(nil), o.src[o.me]...)
		err := AllReduce(ctx, x.team, buf, r.on)
		x.same(o.reduce(r.op), buf, err, "allreduce by "+r.name, n)
	}
}

// scans tries the scans, also in place.
func (x *trial[T]) scans(n int) {
	ctx := context.Background()
	add := func(a, b T) T { return a + b }
	for _, dst := range []Sym[T]{x.a, x.b} {
		o := x.fill(x.a, n)
		o.src = o.src[:o.me+1]
		x.check(o.reduce(add), dst, SumInscan(ctx, x.team, dst, x.a.Slice(0, n)), "inscan", n)
		o = x.fill(x.a, n)
		want := make([]T, n)
		if o.src = o.src[:o.me]; o.me > 0 {
			want = o.reduce(add)
		}
		x.check(want, dst, SumExscan(ctx, x.team, dst, x.a.Slice(0, n)), "exscan", n)
	}
}

// try tries one type with several sizes.
func try[T Elem](t require.TestingT, team *Team, all []reduction[T], sizes []int, rounds int, salt uint64) {
	var zero T
	longest := 0
	for _, n := range sizes {
		longest = max(longest, n)
	}
	w := team.w
	a, err := Alloc[T](context.Background(), w, longest*w.NumPEs())
	require.NoError(t, err)
	b, err := AllocZeroed[T](context.Background(), w, longest*w.NumPEs())
	require.NoError(t, err)
	tryWith(t, team, a, b, all, sizes, rounds, salt, fmt.Sprintf("%T", zero))
	require.NoError(t, w.Team().Sync(context.Background()))
	require.NoError(t, Free(context.Background(), a))
	require.NoError(t, Free(context.Background(), b))
}

func tryWith[T Elem](t require.TestingT, team *Team, a, b Sym[T], all []reduction[T], sizes []int, rounds int, salt uint64, label string) {
	x := &trial[T]{
		t: t, team: team, a: a, b: b, label: label, pauses: rounds > 1,
		rng: rand.New(rand.NewPCG(testSeed, salt)), mine: rand.New(rand.NewPCG(testSeed, uint64(team.MyPE()))),
	}
	for range rounds {
		for _, n := range sizes {
			x.moves(n)
			x.reductions(all, n)
			x.scans(n)
		}
	}
}

func init() { bodies["collectives"] = collectives }

// collectives tries some types of each kind.
func collectives(t require.TestingT, w *World) {
	try(t, w.Team(), bitwiseToo[uint16](), []int{0, 24, 25, 1000}, 1, 70)
	try(t, w.Team(), arithmetic[float64](), []int{1, 7, 1000}, 2, 71)
	try(t, w.Team(), []reduction[complex128]{arithmetic[complex128]()[1]}, []int{20_003}, 1, 72)
}

func TestCollectivesBetweenProcesses(t *testing.T) {
	for mode := range modes {
		t.Run(mode, func(t *testing.T) { processes(t, "collectives", 3, mode, nil) })
	}
	hosts := func(kind string, n int) func(job string, pe int) string {
		return func(job string, pe int) string { return fmt.Sprintf("%s:%s?node=%d&nodes=%d", kind, job, pe+1, n) }
	}
	t.Run("ring", func(t *testing.T) { processes(t, "collectives", 5, "mapped", ringOf(5)) })
	t.Run("line", func(t *testing.T) { processes(t, "collectives", 4, "mapped", hosts("line", 4)) })
	t.Run("mesh", func(t *testing.T) { processes(t, "collectives", 3, "strict", hosts("mesh", 3)) })
}

func TestCollectivesOfAllTypes(t *testing.T) {
	sizes := []int{0, 1, 5, 100}
	each(t, []int{1, 2, 3, 4, 7}, func(t *testing.T, w *World) {
		team := w.Team()
		try(t, team, bitwiseToo[int8](), sizes, 1, 1)
		try(t, team, bitwiseToo[int16](), sizes, 1, 2)
		try(t, team, bitwiseToo[int32](), sizes, 1, 3)
		try(t, team, bitwiseToo[int64](), sizes, 1, 4)
		try(t, team, bitwiseToo[int](), sizes, 1, 5)
		try(t, team, bitwiseToo[uint8](), sizes, 1, 6)
		try(t, team, bitwiseToo[uint16](), sizes, 1, 7)
		try(t, team, bitwiseToo[uint32](), sizes, 1, 8)
		try(t, team, bitwiseToo[uint64](), sizes, 1, 9)
		try(t, team, bitwiseToo[uint](), sizes, 1, 10)
		try(t, team, bitwiseToo[uintptr](), sizes, 1, 11)
		try(t, team, ordered[float32](), sizes, 1, 12)
		try(t, team, ordered[float64](), sizes, 1, 13)
		try(t, team, arithmetic[complex64](), sizes, 1, 14)
		try(t, team, arithmetic[complex128](), sizes, 1, 15)
	})
}

func TestCollectivesOneAfterTheOther(t *testing.T) {
	each(t, []int{2, 3, 4, 7}, func(t *testing.T, w *World) {
		try(t, w.Team(), arithmetic[float64](), []int{1, 2, 6, 7, 40, 333}, 6, 20)
	})
}

func TestAFastRootDoesNotOvertakeSlowPEs(t *testing.T) {
	each(t, []int{2, 4}, func(t *testing.T, w *World) {
		ctx, n := context.Background(), w.NumPEs()
		rng := rand.New(rand.NewPCG(testSeed, 90))
		a, err := Alloc[int64](ctx, w, 20)
		require.NoError(t, err)
		b, err := Alloc[int64](ctx, w, 20)
		require.NoError(t, err)
		for round := range 12 {
			root, size := rng.IntN(n), 1+round%3*9 // sizes of one message, and of more than one
			for i := range 4 * messageSlots {
				a.Local()[size-1] = int64(round*1000 + i)
				if w.PE() != root && i%messageSlots == 0 {
					time.Sleep(50 * time.Microsecond)
				}
				require.NoError(t, Broadcast(ctx, w.Team(), b, a.Slice(0, size), root))
				require.Equal(t, int64(round*1000+i), b.Local()[size-1], "seed %d", testSeed)
			}
		}
	})
}

func TestCollectivesOfMoreThanAFew(t *testing.T) {
	each(t, []int{flatTeam + 1, 13}, func(t *testing.T, w *World) {
		try(t, w.Team(), arithmetic[float32](), []int{1, 5, 80}, 2, 25)
	})
}

func TestLargeCollectives(t *testing.T) {
	each(t, []int{2, 3, 4}, func(t *testing.T, w *World) {
		try(t, w.Team(), []reduction[float64]{arithmetic[float64]()[0]}, []int{50_001}, 1, 30)
	})
}
