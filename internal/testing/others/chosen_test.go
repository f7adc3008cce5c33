package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChosenSuites(t *testing.T) {
	for _, c := range []struct {
		args  []string
		names []string
		err   string
	}{
		{[]string{"redis", "mysql"}, []string{"redis", "mysql"}, ""},
		{[]string{"std", "net/http"}, []string{"std"}, ""},
		{[]string{"example.org/x@v1.0.0"}, []string{"example.org/x@v1.0.0"}, ""},
		{[]string{"."}, []string{"."}, ""},
		{[]string{"nosuch"}, nil, `"nosuch" is no suite, no MODULE@VERSION and no directory`},
		{[]string{"redis", "mysqll"}, nil, `"mysqll" is no suite, no MODULE@VERSION and no directory`},
		{[]string{"redys", "mysql"}, nil, `"redys" is no suite, no MODULE@VERSION and no directory`},
	} {
		found, err := chosen(c.args)
		var names []string
		for _, s := range found {
			names = append(names, s.name)
		}
		require.Equal(t, c.names, names)
		if c.err == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, c.err)
		}
	}
}
