//go:build linux

package integration

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// comesUp are the steps by which the machine of a side comes up after its boot.
var comesUp = []string{"load ntb_cdev", "start far far ntb", "ask far echo node1 20"}

// comes has the machine of side 1 come up again, and be killed, reset or paused meanwhile, as a seed says. After that it comes
// up, and both machines use each other. The other side has no event of a link of which the machine is reset.
func (b *bridged) comes(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	at, how := int(seed)%(1+len(comesUp)), int(seed)/(1+len(comesUp))%3
	after := time.Duration(r.Int64N(int64([]time.Duration{4 * time.Second, 20 * time.Millisecond, time.Second, time.Second}[at])))
	t.Logf("seed %d: the machine is %s %v after the beginning of step %d", seed, []string{"killed", "reset", "paused"}[how], after, at)

	b.sides[1].kill()
	start := func() *vm {
		v := b.startSide(1)
		v.t = t
		return v
	}
	v := start()
	steps := append([]string{""}, comesUp...) // the boot is first
	for i, step := range steps {
		if step != "" {
			_, err := fmt.Fprintln(v.in, step)
			require.NoError(t, err)
		}
		if i == at {
			time.Sleep(after)
			if how < 2 {
				break
			}
			require.NoError(t, v.cmd.Process.Signal(syscall.SIGSTOP))
			time.Sleep(time.Duration(r.Int64N(int64(4 * time.Second))))
			require.NoError(t, v.cmd.Process.Signal(syscall.SIGCONT))
			if i == len(steps)-1 { // a link that is silent for a second is down, and its connections are reset
				require.Regexp(t, `"Value":"(ok |.*connection reset by peer")`, v.readLine())
				break
			}
		}
		v.answers(step)
	}
	if how < 2 {
		deaf := b.bridge.(interface{ Deafen(side int, deaf bool) })
		deaf.Deafen(0, how == 1)
		v.kill()
		v = start()
		v.ready()
		deaf.Deafen(0, false)
		for _, step := range comesUp {
			_, err := fmt.Fprintln(v.in, step)
			require.NoError(t, err)
			v.answers(step)
		}
	}
	b.sides[1].node = b.sides[1].does("node")
	b.converse()
}

// answers waits for the answer to a step, "" for the boot.
func (v *vm) answers(step string) {
	v.t.Helper()
	if step == "" {
		v.ready()
		return
	}
	answer := v.readLine()
	require.Contains(v.t, answer, `"Error":""`, step)
	if strings.HasPrefix(step, "ask ") {
		require.Contains(v.t, answer, `"Value":"ok `, step)
	}
}

// A machine is killed, reset and paused at each step in which it comes up.
func TestVMBridgeComesUp(t *testing.T) {
	wantMatrix(t)
	b := openBridge(t, bridgeKinds[0])
	b.join()
	for seed := range uint64(20) {
		b.part(fmt.Sprint("seed ", seed), func(t *testing.T) { b.comes(t, seed) })
	}
	b.leave()
	for _, s := range b.sides {
		s.end()
	}
}
