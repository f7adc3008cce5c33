//go:build linux

package integration

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/selftest"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/stretchr/testify/require"
)

// playSelftest tests the machine's bridge from this end, and answers with the report.
func playSelftest(p *self) error {
	a, _, err := spec.AttachEnd("ntb", 0)
	if err != nil {
		return err
	}
	ran := make(chan *selftest.Report)
	go func() {
		r, _ := selftest.Run(context.Background(), a, selftest.Options{Time: 2 * time.Second, Wait: testTimeout, Late: testTimeout})
		ran <- r
	}()
	p.printf("ready")
	p.readLine()
	text, err := json.Marshal(<-ran)
	if err != nil {
		return err
	}
	p.printf("%s", text)
	return a.Close()
}

// selftest has both ends test the bridge.
func (b *bridged) selftest(t *testing.T) {
	b.leave()
	for _, s := range b.sides {
		require.Equal(t, "ready", s.must("start selftest selftest"))
	}
	for i, s := range b.sides {
		text := s.must("ask selftest result")
		s.must("end selftest")
		var r selftest.Report
		require.NoError(t, json.Unmarshal([]byte(text), &r), text)
		for _, c := range r.Checks {
			t.Logf("side %d: %t %s: %s", i, c.Pass, c.Name, c.Found)
		}
		require.True(t, r.Pass, text)
		require.Equal(t, "kernel", r.Backend)
	}
	b.join()
	b.converse()
}
