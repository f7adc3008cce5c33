package flags

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestVersionHasModuleCommitAndGo(t *testing.T) {
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	for _, c := range []struct {
		main     string
		settings []debug.BuildSetting
		want     string
	}{
		{"v1.2.3", nil, "cmd v1.2.3, commit unknown, go1.26.0 linux/arm64\n"},
		{"", nil, "cmd (devel), commit unknown, go1.26.0 linux/arm64\n"},
		{"(devel)", []debug.BuildSetting{commit}, "cmd (devel), commit 0123456789ab, go1.26.0 linux/arm64\n"},
		{"v1.2.3+dirty", []debug.BuildSetting{commit, {Key: "vcs.modified", Value: "true"}},
			"cmd v1.2.3+dirty, commit 0123456789ab with changes, go1.26.0 linux/arm64\n"},
	} {
		info := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: c.main}, Settings: append(c.settings,
			debug.BuildSetting{Key: "GOOS", Value: "linux"}, debug.BuildSetting{Key: "GOARCH", Value: "arm64"})}
		require.Equal(t, c.want, version("cmd", info))
	}
}

func TestHelpAndVersionAreFlagsAndWords(t *testing.T) {
	for _, arg := range []string{"--help", "-h", "help", "--version", "version"} {
		var out strings.Builder
		fs := pflag.NewFlagSet("cmd", pflag.ContinueOnError)
		fs.Usage = func() { out.WriteString("usage\n" + fs.FlagUsages()) }
		require.ErrorIs(t, Parse(fs, []string{arg}, &out), pflag.ErrHelp, arg)
		if strings.Contains(arg, "version") {
			require.Regexp(t, `^cmd \S+, commit .*, go\S+ \w+/\w+\n$`, out.String(), arg)
		} else {
			require.Contains(t, out.String(), "usage\n", arg)
			require.Contains(t, out.String(), "--version", arg)
		}
	}
	for _, args := range [][]string{{"help", "x"}, {"./help"}, {"--", "help"}} {
		var out strings.Builder
		fs := pflag.NewFlagSet("cmd", pflag.ContinueOnError)
		require.NoError(t, Parse(fs, args, &out))
		require.Empty(t, out.String())
	}
}
