package launch

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParseTakesFieldsInAnyOrder(t *testing.T) {
	for _, line := range []string{
		"cmd=get_result rc=0 msg=success value=a=b",
		"value=a=b  msg=success rc=0 cmd=get_result ",
	} {
		m, err := parse(line)
		assert.NoError(t, err)
		assert.Equal(t, "get_result", m["cmd"])
		assert.Equal(t, "a=b", m["value"])
		assert.Contains(t, m, "rc")
		assert.NotContains(t, m, "success")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"", "no cmd="},
		{"cmd=", "no cmd="},
		{"rc=0", "no cmd="},
		{"cmd", "not NAME=VALUE"},
		{"cmd=a b", "not NAME=VALUE"},
		{"cmd=a =b", "not NAME=VALUE"},
		{"cmd=a cmd=b", "twice"},
		{"cmd=a value=b\r", "control character"},
		{"cmd=a value=\x00", "control character"},
		{"cmd=" + strings.Repeat("a", maxLine), "a line of"},
	} {
		_, err := parse(c.line)
		assert.ErrorContains(t, err, c.want, "%.40q", c.line)
	}
}

// What is accepted means the same when it is written again.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"cmd=barrier_out", "rc=0 cmd=init", "cmd=a  b=c=d ", "=", "cmd", "cmd=a cmd=a", "cmd=\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		m, err := parse(line)
		if err != nil {
			return
		}
		var fields []string
		for name, value := range m {
			fields = append(fields, name+"="+value)
		}
		again, err := parse(strings.Join(fields, " "))
		assert.NoError(t, err)
		assert.Equal(t, m, again)
	})
}
