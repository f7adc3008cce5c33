package sdp_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
)

// The program of README.md runs as it is shown there.
func TestTheProgramOfTheREADME(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("WARNING: ", err)
	}
	program := exec.Command(goTool, "run", "./testdata/hello")
	program.Env = append(os.Environ(), "SDP_FABRIC=shm:"+fabrictest.Name(t))
	out, err := program.CombinedOutput()
	if err != nil || string(out) != "hello, by *sdp.Conn\n" {
		t.Fatalf("%v: %s", err, out)
	}
}
