package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
)

// The suite of testdata has one test for each way in which a test can differ.
func TestASuiteIsComparedTestByTest(t *testing.T) {
	if os.Getenv("NTBNET_LONG") == "" {
		t.Skip("it builds much of Go's library twice; NTBNET_LONG runs it")
	}
	f, err := sdp.Open("shm:" + fabrictest.Name(t))
	if err != nil {
		t.Skip(err)
	}
	f.Close()
	var log bytes.Buffer
	c, err := compare(t.Context(), suite{name: "suite", target: "testdata/suite", packages: []string{"./..."}},
		options{repeat: 2, timeout: 5 * time.Minute, log: &log})
	require.NoError(t, err, log.String())
	got := map[string]string{}
	for _, r := range c.rows {
		require.True(t, r.bad, r.test)
		got[r.test.name] = r.tcp + " " + r.sdp
	}
	require.Equal(t, map[string]string{
		"TestType/dialled":  "pass fail",
		"TestType/accepted": "pass skip",
		"TestPanics":        "pass died",
		"TestExits":         "pass died",
	}, got, log.String())
	require.True(t, c.bad())
	for name, want := range map[string]string{
		"TestTheLibraryIsPatchedToo": "pass", "TestHalfClose": "pass", "TestOptions": "pass", "TestEmbeds": "pass", "TestAfterThePanic": "pass",
		"TestFailsOverBoth": "fail", "TestType/none": "pass",
	} {
		for _, r := range []results{c.tcp, c.sdp} {
			require.Equal(t, want, r[test{"example.org/suite", name}].String(), name)
		}
	}
	// Nothing uses TCP. Each test connects once or twice, and some are run again.
	require.Zero(t, c.connections["tcp"])
	require.Greater(t, c.connections["sdp"], 5)
	require.Greater(t, c.connections["listen"], 5)

	var table strings.Builder
	c.print(&table, true)
	require.Contains(t, table.String(), "over SDP:\n")
	require.Contains(t, table.String(), "not TCP")
	require.Regexp(t, `(?m)^example\.org/suite TestHalfClose +pass +pass +$`, table.String())
	require.Regexp(t, `(?m)^example\.org/suite TestType/dialled +pass +fail +again: 0 of 2 over TCP, 2 of 2 over SDP do not pass$`, table.String())
}

func TestWhatFailsOverTCPIsPrintedIfNothingPasses(t *testing.T) {
	if os.Getenv("NTBNET_LONG") == "" {
		t.Skip("it builds much of Go's library twice; NTBNET_LONG runs it")
	}
	_, err := compare(t.Context(), suite{target: "testdata/suite", packages: []string{"./..."}},
		options{timeout: 5 * time.Minute, only: "TestFailsOverBoth", log: io.Discard})
	require.ErrorContains(t, err, "nothing passed over TCP")
	require.ErrorContains(t, err, "suite_test.go:138: it fails")
}

func TestASuiteThatIsNoneIsAnError(t *testing.T) {
	_, err := compare(t.Context(), suite{target: t.TempDir()}, options{log: io.Discard})
	require.ErrorContains(t, err, "is no module")
}
