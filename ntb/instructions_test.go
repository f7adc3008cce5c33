package ntb_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// instructions compiles this package's tests for an architecture and returns the
// instructions of the functions that match, by the name of the function. Operands are in
// Go's order: the destination comes last.
func instructions(t *testing.T, arch, match string) map[string][]string {
	goTool, err := exec.LookPath("go")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("the go command is not installed, and CI=true")
		}
		t.Skip("needs the go command: ", err)
	}
	binary := filepath.Join(t.TempDir(), "ntb.test")
	for _, args := range [][]string{{"test", "-c", "-o", binary, "."}, {"tool", "objdump", "-s", match, binary}} {
		cmd := exec.Command(goTool, args...)
		if args[0] == "test" { // the tool itself is of this machine
			cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
		}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		if args[0] == "tool" {
			return parse(string(out))
		}
	}
	return nil
}

func parse(dump string) map[string][]string {
	all := map[string][]string{}
	name := ""
	for line := range strings.Lines(dump) {
		if text, ok := strings.CutPrefix(line, "TEXT "); ok {
			text, _, _ = strings.Cut(text, "(SB)")
			name = strings.TrimSuffix(text[strings.LastIndex(text, "/")+1:], ".abi0")
			continue
		}
		// file:line, address, bytes, instruction
		if f := strings.Fields(line); len(f) > 3 && f[3] != "?" {
			all[name] = append(all[name], strings.Join(f[3:], " "))
		}
	}
	return all
}

const storeFunctions = `^github.com/ntbnet/ntbnet/ntb\.(publish64|publish32|copyWide|writeWide|streamLines|flush|drain|fence|\(\*Window\)\..*)(\.abi0)?$`

// What is compiled makes plain stores of whole words, and the barriers that cover a bridge.
func TestCompiledStoresSuitABridge(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for two architectures")
	}
	exact := map[string]map[string][]string{
		"amd64": {
			"ntb.publish64": {"MOVQ 0x8(SP), AX", "MOVQ 0x10(SP), BX", "MOVQ BX, 0(AX)", "RET"},
			"ntb.publish32": {"MOVQ 0x8(SP), AX", "MOVL 0x10(SP), BX", "MOVL BX, 0(AX)", "RET"},
			"ntb.flush":     {"SFENCE", "RET"},
			"ntb.drain":     {"SFENCE", "RET"},
		},
		"arm64": {
			"ntb.publish64": {"MOVD 8(RSP), R0", "MOVD 16(RSP), R1", "STLR R1, (R0)", "RET"},
			"ntb.publish32": {"MOVD 8(RSP), R0", "MOVWU 16(RSP), R1", "STLRW R1, (R0)", "RET"},
			"ntb.flush":     {"DMB $14", "RET"}, // ST
			"ntb.drain":     {"DSB $14", "RET"}, // ST
			"ntb.fence":     {"DMB $15", "RET"}, // SY
		},
	}
	// The copy: how it reads the target, stores it by bytes, and by words of 8.
	target := map[string]struct{ register, load, bytes, words string }{
		"amd64": {`\(DI\)`, `^[A-Z0-9]+ [0-9a-fx]*\(DI\), `, `^MOVB [A-Z0-9]+, 0\(DI\)$`, `^MOVQ [A-Z0-9]+, [0-9a-fx]+\(DI\)$`},
		"arm64": {`\(R0\)`, `^[A-Z0-9.]+ [0-9]*\(R0\), `, `^MOVB\.P R3, 1\(R0\)$`, `^MOVD\.P R3, 8\(R0\)$`},
	}
	locked := regexp.MustCompile(`LOCK|XCHG|XADD|CAS|SWP|LDXR|LDAXR|STXR|STLXR|LDADD`)
	for arch, want := range exact {
		t.Run(arch, func(t *testing.T) {
			got := instructions(t, arch, storeFunctions)
			for name, code := range want {
				require.Equal(t, code, got[name], name)
			}
			require.Contains(t, got, "ntb.(*Window).Publish64")
			require.Contains(t, got, "ntb.(*Window).Write")
			for name, code := range got {
				for _, in := range code {
					if !locked.MatchString(in) {
						continue
					}
					if name == "ntb.fence" && in == "LOCK ADDQ $0x0, 0(SP)" {
						continue // its own stack
					}
					t.Errorf("%s: %s", name, in)
				}
			}
			to := target[arch]
			words, bytes := 0, 0
			for _, in := range got["ntb.copyWide"] {
				switch {
				case !regexp.MustCompile(to.register).MatchString(in):
				case regexp.MustCompile(to.load).MatchString(in):
					t.Errorf("the copy reads its target: %s", in)
				case regexp.MustCompile(to.words).MatchString(in):
					words++
				case regexp.MustCompile(to.bytes).MatchString(in):
					bytes++
				default:
					t.Errorf("the copy stores otherwise than by words and single bytes: %s", in)
				}
			}
			if arch == "amd64" {
				requireStreams(t, got["ntb.streamLines"])
			}
			require.Positive(t, words)
			require.Equal(t, 2, bytes, "bytes are stored before the first aligned word and behind the last")
		})
	}
}

// requireStreams checks that code stores to its target by non-temporal stores alone, does not read
// it, and has a barrier behind the last.
func requireStreams(t *testing.T, code []string) {
	stores := 0
	for _, in := range code {
		switch {
		case !strings.Contains(in, "(DI)"):
		case regexp.MustCompile(`^MOVNTDQ X[0-3], (0x)?[0-9a-f]+\(DI\)$`).MatchString(in):
			stores++
		default:
			t.Errorf("not a non-temporal store: %s", in)
		}
	}
	require.Equal(t, 4, stores)
	require.Equal(t, []string{"SFENCE", "RET"}, code[len(code)-2:])
}
