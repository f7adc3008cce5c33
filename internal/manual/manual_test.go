package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// checkers read a file of each kind, and print nothing if it is well-formed.
var checkers = [][]string{{"mandoc", "-T", "lint", "-W", "warning"}, {"bash", "-n"}, {"zsh", "-n"}, {"fish", "-n"}}

// tool skips the test without a tool, but for CI, which installs it.
func tool(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// All commands have a page and completion, with every flag and command of their help.
func TestPagesOfAllCommands(t *testing.T) {
	dir := t.TempDir()
	out, err := exec.Command("go", "build", "-o", dir+"/bin/", "../../cmd/...").CombinedOutput()
	require.NoError(t, err, "%s", out)
	binaries, err := filepath.Glob(dir + "/bin/*")
	require.NoError(t, err)
	require.NoError(t, run(dir, binaries))
	var names []string
	for _, binary := range binaries {
		name := filepath.Base(binary)
		names = append(names, name)
		p, err := readHelp(binary)
		require.NoError(t, err)
		for i, place := range places {
			path := filepath.Join(dir, strings.ReplaceAll(place.path, "%s", name))
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, q := range append([]*page{p}, p.Commands...) {
				require.Contains(t, string(text), strings.ReplaceAll(q.Name, "-", map[bool]string{true: `\-`, false: "-"}[i == 0]))
				for _, f := range flagsIn(t, binary, q, p) {
					want := map[int]string{0: strings.ReplaceAll(f, "-", `\-`), 3: "-l " + f[2:]}[i]
					if want == "" {
						want = f
					}
					require.Contains(t, string(text), want, "%s of %s", place.path, name)
				}
			}
			t.Run(name+" by "+checkers[i][0], func(t *testing.T) {
				tool(t, checkers[i][0])
				out, err := exec.Command(checkers[i][0], append(checkers[i][1:], path)...).CombinedOutput()
				require.NoError(t, err, "%s", out)
				require.Empty(t, string(out))
			})
		}
	}
	require.Subset(t, names, []string{"ntb-ivshmem-server", "ntbnet", "sdp-perf", "sdp-proxy", "sdp-run", "sdp-tun", "shmemrun"})

	t.Run("bash completes", func(t *testing.T) {
		tool(t, "bash")
		for line, want := range map[string][]string{
			"ntbnet topo":               {"topology"},
			"ntbnet topology --s":       {"--svg"},
			"ntbnet ls --re":            {"--remove"},
			"sdp-perf swee":             {"sweep"},
			"ntbnet ls --fabric to":     {},
			"sdp-tun se":                {"setup"},
			"sdp-tun setup --us":        {"--user"},
			"sdp-proxy --drain":         {"--drain-timeout"},
			"ntb-ivshmem-server --vect": {"--vectors"},
		} {
			words := strings.Fields(line)
			script := `source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }; _${1//-/_}; printf '%s\n' "${COMPREPLY[@]}"`
			args := append([]string{"-c", script, "bash", filepath.Join(dir, "bash-completion/completions", words[0])}, words...)
			out, err := exec.Command("bash", args...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, want, strings.Fields(string(out)), line)
		}
	})
}

// flagsIn returns the flags that a help has, by another way than parseHelp: the first of a line. It checks that the help
// fits a terminal of 80 columns.
func flagsIn(t *testing.T, binary string, q, p *page) (all []string) {
	t.Helper()
	var words []string
	if q != p {
		words = []string{q.Name}
	}
	out, err := exec.Command(binary, append(words, "--help")...).Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		assert.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), 80, "%s: columns of %q", q.Name, line)
	}
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, |    )(--[\w-]+)`).FindAllStringSubmatch(string(out), -1) {
		all = append(all, m[1])
	}
	require.NotEmpty(t, all, "%s %v", binary, words)
	return all
}

func TestAHelpIsTakenApart(t *testing.T) {
	p := parseHelp([]string{"prog", "sub"}, "prog sub: does it's \\ [best]\nquickly. And more.\n\nUsage: prog sub [flags] FILE\n\n  an example\n.dot\n\n"+
		"Flags, before FILE:\n  -n, --count N       N of them\n                      at most\n      --all           all\n      --out FILE      to\n\nThe end:\n  --none of it\n")
	require.Equal(t, "does it's \\ [best] quickly", p.Summary)
	require.Equal(t, "prog sub [flags] FILE", p.Synopsis)
	require.Equal(t, []flag{{"n", "count", "N", "N of them at most"}, {"", "all", "", "all"}, {"", "out", "FILE", "to"}, {"h", "help", "", "print the help"}}, p.Flags)
	require.Equal(t, []string{"", "The end:", "  --none of it"}, p.Tail)
	text := func(name string) string {
		var b strings.Builder
		require.NoError(t, templates.ExecuteTemplate(&b, name, p))
		return b.String()
	}
	require.Contains(t, text("man.tmpl"), "\n\\&.dot\n")
	require.Contains(t, text("man.tmpl"), "does it's \\e [best] quickly")
	require.Contains(t, text("bash.tmpl"), "words='-n --count --all --out -h --help'")
	require.Contains(t, text("zsh.tmpl"), `'--count[N of them at most]:N:'`)
	require.Contains(t, text("fish.tmpl"), "complete -c sub -l out -r -F -d 'to'\n")
}
