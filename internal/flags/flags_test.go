package flags

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

type size int

func (s *size) String() string   { return "" }
func (s *size) Set(string) error { return errors.New("want a size, as in 64K") }
func (s *size) Type() string     { return "SIZE" }

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
		fs.Var(new(size), "size", "")
		return Parse(fs, args, io.Discard)
	}
	for arg, want := range map[string]string{
		"--rounds=x":  `--rounds "x": want a whole number`,
		"--rounds=1.": `--rounds "1.": want a whole number`,
		"-nfour":      `-n "four": want a whole number`,
		"--wait=3":    `--wait "3": want a time with its unit, as in 300ms or 2s`,
		"--json=x":    `--json "x": want true or false`,
		"--seed=-1":   `--seed "-1": want a whole number, not negative`,
		"--size=x":    `invalid argument "x" for "--size" flag: want a size, as in 64K`,
		"--nosuch":    `unknown flag: --nosuch`,
	} {
		require.EqualError(t, parse(arg), want)
	}
	require.NoError(t, parse("--rounds=7", "--wait", "2s"))
	require.Equal(t, 7, *rounds)
	require.Equal(t, 2*time.Second, *wait)
}
