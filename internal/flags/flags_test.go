package flags

import (
	"io"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]string{"0": "0", "1023": "1023", "1024": "1K", "1500K": "1500K", "1024K": "1M", "64M": "64M", "3G": "3G", "1T": "1T", "2048T": "2048T"} {
		var s Size
		require.NoError(t, s.Set(text))
		require.Equal(t, want, s.String())
	}
	for _, text := range []string{"", "K", "-1", "1X", "1KK", "1.5M", "1 K", "4194305T", "18446744073709551616"} {
		var s Size
		require.Error(t, s.Set(text), text)
	}
}

func TestValuesOfTheWrongType(t *testing.T) {
	var rounds *int
	var wait *time.Duration
	parse := func(args ...string) error {
		fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
		rounds = fs.Int("rounds", 5, "")
		fs.IntP("n", "n", 0, "")
		wait = fs.Duration("wait", time.Second, "")
		fs.Bool("json", false, "")
		fs.Uint64("seed", 0, "")
		fs.Var(new(Size), "size", "")
		return Parse(fs, args, io.Discard)
	}
	for arg, want := range map[string]string{
		"--rounds=x":  `--rounds "x": want a whole number`,
		"--rounds=1.": `--rounds "1.": want a whole number`,
		"-nfour":      `-n "four": want a whole number`,
		"--wait=3":    `--wait "3": want a time with its unit, as in 300ms or 2s`,
		"--json=x":    `--json "x": want true or false`,
		"--seed=-1":   `--seed "-1": want a whole number, not negative`,
		"--size=x":    `--size "x": want bytes, as in 65536, 64K or 1M`,
		"--nosuch":    `unknown flag: --nosuch`,
	} {
		require.EqualError(t, parse(arg), want)
	}
	require.NoError(t, parse("--rounds=7", "--wait", "2s"))
	require.Equal(t, 7, *rounds)
	require.Equal(t, 2*time.Second, *wait)
}
