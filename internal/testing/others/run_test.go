package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// said returns the results of a package whose tests print these events.
func said(events ...event) (results, []string) {
	p := newProgress()
	for _, e := range events {
		p.add(e)
	}
	r := results{}
	dead := p.finish("p", r)
	slices.Sort(dead)
	return r, dead
}

func TestResultsAreAddedUpFromEvents(t *testing.T) {
	t.Run("passed, failed, skipped", func(t *testing.T) {
		r, dead := said(
			event{Action: "run", Test: "TestA"}, event{Action: "pass", Test: "TestA"},
			event{Action: "run", Test: "TestA"}, event{Action: "pass", Test: "TestA"},
			event{Action: "run", Test: "TestB"}, event{Action: "output", Test: "TestB", Output: "no\n"}, event{Action: "fail", Test: "TestB"},
			event{Action: "run", Test: "TestC"}, event{Action: "skip", Test: "TestC"},
			event{Action: "output", Output: "exit status 1\n"}, event{Action: "fail"})
		require.Empty(t, dead)
		require.Equal(t, results{
			{"p", "TestA"}: {passed: 2},
			{"p", "TestB"}: {failed: 1, output: "no\n"},
			{"p", "TestC"}: {skipped: 1},
			{"p", ""}:      {passed: 1},
		}, r)
	})
	t.Run("the package fails without a test", func(t *testing.T) {
		r, dead := said(event{Action: "run", Test: "TestA"}, event{Action: "pass", Test: "TestA"},
			event{Action: "output", Output: "leak\n"}, event{Action: "fail"})
		require.Empty(t, dead)
		require.Equal(t, results{{"p", "TestA"}: {passed: 1}, {"p", ""}: {failed: 1, output: "leak\n"}}, r)
	})
	t.Run("panic", func(t *testing.T) {
		r, dead := said(
			event{Action: "run", Test: "TestA"}, event{Action: "pass", Test: "TestA"},
			event{Action: "run", Test: "TestB"}, event{Action: "run", Test: "TestB/x"},
			event{Action: "output", Test: "TestB/x", Output: "panic: no\n"}, event{Action: "fail", Test: "TestB/x"}, event{Action: "fail", Test: "TestB"},
			event{Action: "output", Output: "exit status 2\n"}, event{Action: "fail"})
		require.Equal(t, []string{"TestB"}, dead)
		require.Equal(t, "died", r[test{"p", "TestB"}].String())
		require.Equal(t, "pass", r[test{"p", "TestA"}].String())
	})
	t.Run("time out", func(t *testing.T) {
		r, dead := said(
			event{Action: "run", Test: "TestA"}, event{Action: "run", Test: "TestB"}, event{Action: "run", Test: "TestB/x"}, event{Action: "run", Test: "TestC"},
			event{Action: "output", Test: "TestC", Output: "panic: test timed out after 1s\n"},
			event{Action: "output", Test: "TestC", Output: "\trunning tests:\n\t\tTestA (1s)\n\t\tTestB/x (1s)\n\ngoroutine 1:\n"},
			event{Action: "fail", Test: "TestC"}, event{Action: "output", Output: "exit status 2\n"}, event{Action: "fail"})
		require.Equal(t, []string{"TestA", "TestB"}, dead)
		require.Equal(t, "died", r[test{"p", "TestA"}].String())
	})
	t.Run("ended by a test", func(t *testing.T) {
		r, dead := said(event{Action: "run", Test: "TestA"}, event{Action: "output", Output: "exit status 3\n"}, event{Action: "fail"})
		require.Equal(t, []string{"TestA"}, dead)
		require.Equal(t, "died", r[test{"p", "TestA"}].String())
	})
	t.Run("killed while a test ran", func(t *testing.T) {
		_, dead := said(event{Action: "run", Test: "TestA"}, event{Action: "output", Output: "signal: killed\n"}, event{Action: "fail"})
		require.Equal(t, []string{"TestA"}, dead)
	})
	t.Run("killed between tests", func(t *testing.T) {
		r, dead := said(event{Action: "output", Output: "panic: in init\n"}, event{Action: "fail"})
		require.Empty(t, dead)
		require.Equal(t, "died", r[test{"p", ""}].String())
	})
}

func TestWhatDiffersIsTheInnermostTest(t *testing.T) {
	pass, fail, skip := &tally{passed: 1}, &tally{failed: 1}, &tally{skipped: 1}
	tcp := results{
		{"p", "TestSame"}: pass, {"p", "TestBoth"}: fail,
		{"p", "TestA"}: pass, {"p", "TestA/x"}: pass, {"p", "TestA/y"}: pass, {"p", "TestA/y/z"}: pass,
		{"p", "TestEarly"}: pass, {"p", "TestEarly/x"}: pass,
		{"p", "TestNames"}: pass, {"p", "TestNames/1234"}: pass,
		{"p", "TestSkips"}: pass, {"p", "TestGone"}: pass, {"p", "TestGone/x"}: pass,
	}
	tcp[test{"p", ""}], tcp[test{"q", ""}] = pass, pass
	sdp := results{
		{"p", ""}: pass, {"q", ""}: fail,
		{"p", "TestSame"}: pass, {"p", "TestBoth"}: fail,
		{"p", "TestA"}: fail, {"p", "TestA/x"}: pass, {"p", "TestA/y"}: fail, {"p", "TestA/y/z"}: fail,
		{"p", "TestEarly"}: fail,
		{"p", "TestNames"}: pass, {"p", "TestNames/5678"}: pass,
		{"p", "TestSkips"}: skip, {"q", "TestNew"}: fail,
	}
	require.Equal(t, []test{{"p", "TestA/y/z"}, {"p", "TestEarly"}, {"p", "TestGone"}, {"p", "TestSkips"}, {"q", ""}}, differing(tcp, sdp))
}

func TestAKnownTestStandsForItsSubtests(t *testing.T) {
	known[test{"p", "TestA"}] = "because"
	defer delete(known, test{"p", "TestA"})
	for name, want := range map[string]bool{"TestA": true, "TestA/x/y": true, "TestAB": false, "TestB": false, "": false} {
		why, ok := reason(test{"p", name})
		require.Equal(t, want, ok, name)
		require.Equal(t, want, why == "because", name)
	}
	_, ok := reason(test{"q", "TestA"})
	require.False(t, ok)
}
