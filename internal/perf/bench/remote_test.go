package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asWorker makes the test binary a worker of the kind that it names.
const asWorker = "BENCH_TEST_AS_WORKER"

func TestMain(m *testing.M) {
	switch os.Getenv(asWorker) {
	case "":
		os.Exit(m.Run())
	case "good":
		err := ServeWorker(context.Background(), os.Stdin, os.Stdout, []Transport{&odd{"one"}, &odd{"two"}})
		if err != nil {
			panic(err)
		}
	case "none":
		fmt.Println(`{"transports":[]}`)
	case "noise":
		fmt.Println("hello")
	}
}

// odd does what the size of its task says.
type odd struct{ name string }

func (o *odd) Name() string { return o.name }
func (o *odd) Close() error { return nil }
func (o *odd) Measure(_ context.Context, t Task, d time.Duration) (Outcome, error) {
	switch t.Size {
	case 1:
		return Outcome{}, ErrUnsupported
	case 2:
		return Outcome{}, fmt.Errorf("%w: no switch", ErrUnsupported)
	case 3:
		return Outcome{}, errors.New("broken")
	case 4:
		os.Exit(3)
	case 5:
		select {}
	}
	return Outcome{Value: float64(d), Rate: float64(len(o.name))}, nil
}

func worker(kind string) func() *exec.Cmd {
	return func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asWorker+"="+kind, "GORACE=atexit_sleep_ms=0")
		return cmd
	}
}

func TestAWorkersTransports(t *testing.T) {
	checkLeaks(t)
	ctx := context.Background()
	list, err := StartWorker(ctx, worker("good"))
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.Equal(t, "one", list[0].Name())
	measure := func(size int) (Outcome, error) {
		return list[1].Measure(ctx, Task{Test: OneWay, Size: size}, 3*time.Millisecond)
	}
	for range 2 {
		o, err := measure(10)
		require.NoError(t, err)
		assert.Equal(t, Outcome{Value: 3e6, Rate: 3}, o)
		_, err = measure(1)
		assert.Equal(t, ErrUnsupported, err)
		_, err = measure(2)
		assert.ErrorIs(t, err, ErrUnsupported)
		assert.Equal(t, "no switch", reason(err))
		_, err = measure(3)
		assert.EqualError(t, err, "broken")
		_, err = measure(4)
		assert.EqualError(t, err, "the worker ended")
		// The next measurement finds it started again.
	}
	_, err = (&Remote{w: list[0].(*Remote).w, name: "three"}).Measure(ctx, Task{}, 0)
	assert.EqualError(t, err, "no such transport")
	require.NoError(t, list[0].Close())
	require.NoError(t, list[1].Close(), "again")
}

func TestAWorkerThatHangsIsKilled(t *testing.T) {
	checkLeaks(t)
	list, err := StartWorker(context.Background(), worker("good"))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = list[0].Measure(ctx, Task{Size: 5}, time.Hour)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = list[0].Measure(context.Background(), Task{Size: 10}, time.Millisecond)
	require.NoError(t, err)
	require.NoError(t, list[0].Close())
}

func TestAProgramThatIsNoWorker(t *testing.T) {
	checkLeaks(t)
	_, err := StartWorker(context.Background(), worker("none"))
	assert.ErrorContains(t, err, "no transport")
	_, err = StartWorker(context.Background(), worker("noise"))
	assert.ErrorContains(t, err, "invalid character")
	_, err = StartWorker(context.Background(), worker("silent"))
	assert.ErrorContains(t, err, "the worker ended")
	_, err = StartWorker(context.Background(), func() *exec.Cmd { return exec.Command("/nonexistent/worker") })
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestAWorkerRefusesWhatIsNoRequest(t *testing.T) {
	assert.Error(t, ServeWorker(context.Background(), strings.NewReader("frob\n"), io.Discard, nil))
}
