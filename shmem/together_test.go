package shmem

import (
	"context"
	"fmt"
	"github.com/ntbnet/ntbnet/internal/onesided"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

func init() { bodies["serve HTTP while others put"] = serveAndPut }

// PE 0 serves HTTP over the fabric by which its heap is reached. PE 1 sends requests.
// The other PEs put and add to PE 0 meanwhile. Each goes on until the others have done
// their share.
func serveAndPut(t require.TestingT, w *World) {
	const requests, rounds, port = 300, 300, "4080"
	ctx, c := context.Background(), w.Ctx()
	s, err := AllocZeroed[uint64](ctx, w, 10_000)
	require.NoError(t, err)
	// Element i of done, at PE 0, is how much PE i has done.
	done, err := AllocZeroed[int64](ctx, w, w.NumPEs())
	require.NoError(t, err)
	barrier := func() { require.NoError(t, w.Team().Barrier(ctx)) }
	progress := func(pe int) int64 { return AtomicFetch(c, done, pe, 0) }

	var server *http.Server
	ended := make(chan error, 1)
	if w.PE() == 0 {
		ln, err := w.Fabric().Listen(sdp.Network, ":"+port)
		require.NoError(t, err)
		server = &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			fmt.Fprint(rw, AtomicFetch(c, done, 2, 0))
		})}
		go func() { ended <- server.Serve(ln) }()
	}
	barrier()
	host := "localhost"
	if strings.Contains(os.Getenv(envArgs), " ring:") {
		host = "node1"
	}
	switch w.PE() {
	case 0:
		require.NoError(t, WaitUntilAll(ctx, done.Slice(1, w.NumPEs()), nil, Ge, requests))
	case 1:
		transport := &http.Transport{DialContext: (&sdp.Dialer{Fabric: w.Fabric()}).DialContext}
		client := &http.Client{Transport: transport}
		for i := 0; i < requests || progress(2) < rounds; i++ {
			r, err := client.Get("http://" + host + ":" + port + "/")
			require.NoError(t, err)
			_, err = io.ReadAll(r.Body)
			require.NoError(t, err)
			r.Body.Close()
			AtomicInc(c, done, 1, 0)
		}
		transport.CloseIdleConnections()
	default:
		buf := make([]uint64, s.Len())
		for i := 0; i < rounds || progress(1) < requests; i++ {
			Put(c, s, buf, 0)
			require.NoError(t, c.Quiet())
			AtomicInc(c, done, w.PE(), 0)
		}
	}
	barrier()
	if w.PE() == 0 {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	}
}

func TestSocketsAndPutsGoOnTogether(t *testing.T) {
	const name = "serve HTTP while others put"
	for mode := range modes {
		t.Run(mode, func(t *testing.T) { processes(t, name, 3, mode, nil) })
	}
	t.Run("ring", func(t *testing.T) { processes(t, name, 4, "mapped", ringOf(4)) })
}

func TestMistakesOfTheCallerPanic(t *testing.T) {
	run(t, 2, "mem:mistakes", nil, func(w *World) {
		c, closed := w.Ctx(), NewCtx(w)
		require.NoError(t, closed.Close())
		s, err := Alloc[int32](context.Background(), w, 10)
		require.NoError(t, err)
		require.NoError(t, w.Team().Barrier(context.Background()))
		for message, f := range map[string]func(){
			"shmem: PE 2 of 2":  func() { Put(c, s, []int32{1}, 2) },
			"shmem: PE -1 of 2": func() { AtomicFetch(c, s, 0, -1) },
			"shmem: 11 elements do not fit into an object of 10":                 func() { Put(c, s, make([]int32, 11), 1) },
			"shmem: 6 elements do not fit into an object of 5":                   func() { Get(c, make([]int32, 6), s.From(5), 1) },
			"shmem: index 10 of an object of 10 elements":                        func() { P(c, s, 10, 1, 1) },
			"shmem: index -1 of an object of 10 elements":                        func() { Test(s, -1, Eq, 0) },
			"shmem: slice [3:11] of an object of 10 elements":                    func() { s.Slice(3, 11) },
			"shmem: object of -1 elements":                                       func() { _, _ = Alloc[int32](context.Background(), w, -1) },
			"shmem: alignment of 3 bytes":                                        func() { _, _ = AllocAligned[int32](context.Background(), w, 3, 1) },
			"shmem: 2 values for an object of 10 elements":                       func() { TestAllVector(s, nil, Eq, []int32{1, 2}) },
			"shmem: 1 elements to skip or not, of an object of 10":               func() { TestAll(s, []bool{true}, Eq, 1) },
			"shmem: unknown comparison":                                          func() { Test(s, 0, Le+1, 0) },
			"shmem: 2 blocks of 3 elements, 2 and 3 apart":                       func() { IBPut(c, s, 2, make([]int32, 6), 3, 3, 2, 1) },
			"shmem: use of a closed World, or of a zero Sym":                     func() { Sym[int32]{o: onesided.Object{N: 1}}.Local() },
			"shmem: use of a closed context":                                     func() { P(closed, s, 0, 1, 1) },
			"shmem: the default context is closed with its World":                func() { c.Close() },
			"shmem: the team of all PEs and the shared team cannot be destroyed": func() { _ = w.Team().Destroy(context.Background()) },
		} {
			require.PanicsWithValue(t, message, f)
		}
		require.NoError(t, w.Team().Barrier(context.Background()))
	})
}

func TestUseAfterClosePanics(t *testing.T) {
	var w *World
	var s Sym[int64]
	run(t, 1, "mem:closed", nil, func(open *World) {
		w = open
		var err error
		s, err = Alloc[int64](context.Background(), w, 1)
		require.NoError(t, err)
	})
	const message = "shmem: use of a closed World, or of a zero Sym"
	require.PanicsWithValue(t, message, func() { s.Local() })
	require.PanicsWithValue(t, message, func() { Put(w.Ctx(), s, []int64{1}, 0) })
	require.PanicsWithValue(t, message, func() { AtomicFetch(w.Ctx(), s, 0, 0) })
	require.PanicsWithValue(t, message, func() { _ = w.Team().Sync(context.Background()) })
	require.PanicsWithValue(t, message, func() { _, _ = Alloc[int64](context.Background(), w, 1) })
	require.ErrorIs(t, w.Close(context.Background()), ErrClosed)
}
