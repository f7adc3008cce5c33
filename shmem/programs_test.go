package shmem

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// These are small programs as PGAS users write them, with results that are known.

func init() {
	bodies["heat"] = heat
	bodies["sort"] = bucketSort
	bodies["random updates"] = randomUpdates
	bodies["transpose"] = transpose
	bodies["mandelbrot"] = mandelbrot
}

func TestPrograms(t *testing.T) {
	for _, name := range []string{"heat", "sort", "random updates", "transpose", "mandelbrot"} {
		t.Run(name, func(t *testing.T) {
			each(t, []int{1, 2, 3, 4, 7}, func(t *testing.T, w *World) { bodies[name](t, w) })
			for mode := range modes {
				t.Run("processes/"+mode, func(t *testing.T) { processes(t, name, 3, mode, nil) })
			}
			t.Run("ring", func(t *testing.T) { processes(t, name, 4, "mapped", ringOf(4)) })
		})
	}
}

// part returns which of n rows belong to a PE, in blocks.
func part(n, pe, npes int) (from, to int) { return n * pe / npes, n * (pe + 1) / npes }

// heat is a stencil in two dimensions. Rows are divided among the PEs. After each
// step, each PE puts its edge rows beside those of its neighbours, with a signal.
func heat(t require.TestingT, w *World) {
	const rows, columns, steps = 48, 40, 30
	ctx, c := context.Background(), w.Ctx()
	from, to := part(rows, w.PE(), w.NumPEs())
	most := (rows + w.NumPEs() - 1) / w.NumPEs()
	// Row 0 is the edge of the PE above, rows 1 to own belong to this PE, and the last
	// row is the edge of the PE below. Two grids take turns, so that a neighbour which
	// is a step ahead does no harm.
	var grids [2]Sym[float64]
	for i := range grids {
		var err error
		grids[i], err = AllocZeroed[float64](ctx, w, (most+2)*columns)
		require.NoError(t, err)
	}
	above, err := AllocZeroed[uint64](ctx, w, 1)
	require.NoError(t, err)
	below, err := AllocZeroed[uint64](ctx, w, 1)
	require.NoError(t, err)
	own := to - from
	row := func(g Sym[float64], i int) Sym[float64] { return g.Slice(i*columns, (i+1)*columns) }
	start := func(i, j int) float64 { return float64((i*31 + j*17) % 101) }
	for i := range own {
		for j := range columns {
			row(grids[0], i+1).Local()[j] = start(from+i, j)
		}
	}
	for step := range steps {
		now, next := grids[step%2], grids[(step+1)%2]
		n := uint64(step + 1)
		if w.PE() > 0 {
			up := w.PE() - 1
			a, b := part(rows, up, w.NumPEs())
			PutSignal(c, row(now, b-a+1), row(now, 1).Local(), below, n, SignalSet, up)
		}
		if w.PE() < w.NumPEs()-1 {
			PutSignal(c, row(now, 0), row(now, own).Local(), above, n, SignalSet, w.PE()+1)
		}
		if w.PE() > 0 {
			_, err := SignalWaitUntil(ctx, above, Ge, n)
			require.NoError(t, err)
		}
		if w.PE() < w.NumPEs()-1 {
			_, err := SignalWaitUntil(ctx, below, Ge, n)
			require.NoError(t, err)
		}
		relax(next.Local(), now.Local(), from, to, rows, columns)
	}
	require.NoError(t, w.Team().Barrier(ctx))
	// One PE computes the same.
	var one [2][]float64
	for i := range one {
		one[i] = make([]float64, (rows+2)*columns)
	}
	for i := range rows {
		for j := range columns {
			one[0][(i+1)*columns+j] = start(i, j)
		}
	}
	for step := range steps {
		relax(one[(step+1)%2], one[step%2], 0, rows, rows, columns)
	}
	require.Equal(t, one[steps%2][(from+1)*columns:(to+1)*columns], grids[steps%2].Local()[columns:(own+1)*columns])
	require.NoError(t, w.Team().Barrier(ctx))
}

// relax computes rows from to to of a grid whose row i is at i-from+1. The border of
// the whole keeps its heat.
func relax(next, now []float64, from, to, rows, columns int) {
	for i := from; i < to; i++ {
		for j := range columns {
			k := (i-from+1)*columns + j
			if i == 0 || i == rows-1 || j == 0 || j == columns-1 {
				next[k] = now[k]
			} else {
				next[k] = 0.25 * (now[k-columns] + now[k+columns] + now[k-1] + now[k+1])
			}
		}
	}
}

// bucketSort sorts integers. Each PE sends every key to the PE to whose range it
// belongs, to a place that it reserves there by an atomic addition.
func bucketSort(t require.TestingT, w *World) {
	const keys, limit = 5000, 1 << 20
	ctx, c, n := context.Background(), w.Ctx(), w.NumPEs()
	bucket, err := Alloc[int32](ctx, w, keys*n)
	require.NoError(t, err)
	count, err := AllocZeroed[int64](ctx, w, 1)
	require.NoError(t, err)
	sum, err := AllocZeroed[int64](ctx, w, 2)
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(7, uint64(w.PE())))
	byPE := make([][]int32, n)
	var total int64
	for range keys {
		k := random.Int32N(limit)
		total += int64(k)
		to := int(int64(k) * int64(n) / limit)
		byPE[to] = append(byPE[to], k)
	}
	for i := range n {
		to := (w.PE() + i) % n
		at := AtomicFetchAdd(c, count, 0, int64(len(byPE[to])), to)
		Put(c, bucket.From(int(at)), byPE[to], to)
	}
	AtomicAdd(c, sum, 0, total, 0)
	require.NoError(t, w.Team().Barrier(ctx))
	mine := bucket.Local()[:count.Local()[0]]
	slices.Sort(mine)
	var got int64
	for _, k := range mine {
		got += int64(k)
	}
	AtomicAdd(c, sum, 1, got, 0)
	require.NoError(t, w.Team().Barrier(ctx))
	// Nothing is lost, and the ranges follow each other.
	require.Equal(t, G(c, sum, 0, 0), G(c, sum, 1, 0))
	if w.PE() > 0 && len(mine) > 0 {
		left := w.PE() - 1
		if before := G(c, count, 0, left); before > 0 {
			require.LessOrEqual(t, G(c, bucket, int(before)-1, left), mine[0])
		}
	}
	require.NoError(t, w.Team().Barrier(ctx))
}

// randomUpdates is GUPS: every PE flips bits of random words of a shared table. After
// it is done twice, nothing has changed.
func randomUpdates(t require.TestingT, w *World) {
	const words, updates = 1 << 10, 4000
	ctx, c, n := context.Background(), w.Ctx(), w.NumPEs()
	table, err := Alloc[uint64](ctx, w, words)
	require.NoError(t, err)
	for i := range table.Local() {
		table.Local()[i] = uint64(w.PE()*words + i)
	}
	require.NoError(t, w.Team().Barrier(ctx))
	for range 2 {
		random := rand.New(rand.NewPCG(3, uint64(w.PE())))
		for range updates {
			v := random.Uint64()
			at := v % uint64(words*n)
			AtomicXor(c, table, int(at%words), v, int(at/words))
		}
		require.NoError(t, w.Team().Barrier(ctx))
	}
	for i, v := range table.Local() {
		require.Equal(t, uint64(w.PE()*words+i), v)
	}
	require.NoError(t, w.Team().Barrier(ctx))
}

// transpose transposes a matrix whose rows are divided among the PEs. Each PE puts
// its columns, with a stride, to the PE for which they are rows.
func transpose(t require.TestingT, w *World) {
	n := w.NumPEs()
	size := 12 * n // rows and columns
	ctx, c := context.Background(), w.Ctx()
	own := size / n
	a, err := Alloc[complex128](ctx, w, own*size)
	require.NoError(t, err)
	b, err := Alloc[complex128](ctx, w, own*size)
	require.NoError(t, err)
	first := w.PE() * own
	for i := range own {
		for j := range size {
			a.Local()[i*size+j] = complex(float64(first+i), float64(j))
		}
	}
	require.NoError(t, w.Team().Barrier(ctx))
	for i := range own {
		for pe := range n {
			// Row first+i of a, in the columns of pe, is column first+i in the rows
			// of pe.
			IPut(c, b.From(first+i), size, a.Local()[i*size+pe*own:], 1, own, pe)
		}
	}
	require.NoError(t, w.Team().Barrier(ctx))
	for i := range own {
		for j := range size {
			require.Equal(t, complex(float64(j), float64(first+i)), b.Local()[i*size+j], "row %d, column %d", first+i, j)
		}
	}
	// The way back uses gets of whole columns.
	for i := range own {
		row := make([]complex128, size)
		for pe := range n {
			IGet(c, row[pe*own:], 1, b.From(first+i), size, own, pe)
		}
		require.Equal(t, a.Local()[i*size:(i+1)*size], row)
	}
	require.NoError(t, w.Team().Barrier(ctx))
}

// mandelbrot has PEs take rows when they are ready for one, from a counter at PE 0,
// and put what they have computed to PE 0.
func mandelbrot(t require.TestingT, w *World) {
	const width, height, depth = 60, 40, 200
	ctx, c := context.Background(), w.Ctx()
	next, err := AllocZeroed[int32](ctx, w, 1)
	require.NoError(t, err)
	image, err := AllocZeroed[uint8](ctx, w, width*height)
	require.NoError(t, err)
	line := func(y int) []uint8 {
		row := make([]uint8, width)
		for x := range row {
			z, p := complex(0, 0), complex(3.0*float64(x)/width-2.2, 2.4*float64(y)/height-1.2)
			for row[x] = 0; row[x] < depth && math.Abs(real(z))+math.Abs(imag(z)) < 8; row[x]++ {
				z = z*z + p
			}
		}
		return row
	}
	for {
		y := int(AtomicFetchInc(c, next, 0, 0))
		if y >= height {
			break
		}
		Put(c, image.From(y*width), line(y), 0)
	}
	require.NoError(t, w.Team().Barrier(ctx))
	if w.PE() == 0 {
		for y := range height {
			require.Equal(t, line(y), image.Local()[y*width:(y+1)*width], fmt.Sprint("row ", y))
		}
	}
	require.NoError(t, w.Team().Barrier(ctx))
}
