package main

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/bench"
)

// asProgram makes the test binary behave as the command.
const asProgram = "SHMIPC_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestBothAPIsAreMeasured(t *testing.T) {
	ctx := context.Background()
	list, err := bench.StartWorker(ctx, func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+t.TempDir())
		return cmd
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 {
		t.Fatalf("%d transports, want 2", len(list))
	}
	for _, tr := range list {
		for _, task := range []bench.Task{
			{Test: bench.RoundTrip, Size: 64, Connections: 1},
			{Test: bench.OneWay, Size: 1, Connections: 1},
			{Test: bench.OneWay, Size: 64 << 10, Connections: 1},
		} {
			o, err := tr.Measure(ctx, task, 5*time.Millisecond)
			for i := 0; i < 9 && err != nil; i++ {
				t.Log(err) // an error of the library: see attempts
				o, err = tr.Measure(ctx, task, 5*time.Millisecond)
			}
			if err != nil || o.Value <= 0 || o.Rate <= 0 {
				t.Errorf("%s: %+v: %+v, %v", tr.Name(), task, o, err)
			}
		}
		if _, err := tr.Measure(ctx, bench.Task{Test: bench.Get, Size: 1, Connections: 1}, 0); err != bench.ErrUnsupported {
			t.Errorf("%s: HTTP: %v", tr.Name(), err)
		}
	}
	if err := list[0].Close(); err != nil {
		t.Error(err)
	}
}

func TestHeadersOutOfRangeAreRefused(t *testing.T) {
	for _, h := range []header{{0, 1}, {maxSize + 1, 0}, {1 << 31, 0}} {
		if _, err := parseHeader(h.encode()); err == nil {
			t.Errorf("%+v", h)
		}
	}
	want := header{4096, 7}
	if got, err := parseHeader(want.encode()); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}
