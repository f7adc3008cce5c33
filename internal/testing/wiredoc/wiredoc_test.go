package wiredoc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const text = `
- [Frames](#frames)

## Frames

| kind | meaning |
|---|---|
| 1 | data |
| 2 | offset |

| offset | bytes | name |
|---|---|---|
| 0x10 | 4 | number |
| 20 | n | body |

A line:

| bits | name |
|---|---|
| 0–31 | low |
| 32 | high |

## Rest

| constant |
|---|
| x |
`

func TestATableIsFoundBelowItsHeading(t *testing.T) {
	require.Equal(t, []Row{
		{"offset": "0x10", "bytes": "4", "name": "number"},
		{"offset": "20", "bytes": "n", "name": "body"},
	}, find(text, "Frames", "offset"))
	require.Equal(t, []Row{{"kind": "1", "meaning": "data"}, {"kind": "2", "meaning": "offset"}}, find(text, "Frames", "kind"))
	require.Equal(t, []Row{{"bits": "0–31", "name": "low"}, {"bits": "32", "name": "high"}}, find(text, "line", "bits"))
	require.Equal(t, []Row{{"constant": "x"}}, find(text, "Rest", "constant"))
}

func TestATableOfAnotherSectionIsNotTaken(t *testing.T) {
	require.Empty(t, find(text, "Frames", "constant"))
	require.Empty(t, find(text, "Rest", "bits"))
	require.Empty(t, find(text, "Frame", "offset"))
}

func TestCellsAreNumbers(t *testing.T) {
	rows := find(text, "Frames", "offset")
	require.Equal(t, 16, rows[0].Number(t, "offset"))
	require.Equal(t, 20, rows[1].Number(t, "offset"))
	bits := find(text, "line", "bits")
	first, last := bits[0].Bits(t, "bits")
	require.Equal(t, [2]int{0, 31}, [2]int{first, last})
	first, last = bits[1].Bits(t, "bits")
	require.Equal(t, [2]int{32, 32}, [2]int{first, last})
}

func TestAVectorHasValuesAndBytes(t *testing.T) {
	const text = "A word:\n\n```vector word\na=1 b=2\nc=3\n0102 03\n04\n```\n\n```vector bad\na=1\n012\n```\n" +
		"```vector empty\na=1\n```\n```vector twice\na=1\n01\n```\n```vector twice\na=1\n01\n```\n"
	values, wire, err := vector(text, "word")
	require.NoError(t, err)
	require.Equal(t, "a=1 b=2 c=3", values)
	require.Equal(t, []byte{1, 2, 3, 4}, wire)
	for _, name := range []string{"bad", "empty", "twice"} {
		_, _, err := vector(text, name)
		require.Error(t, err, name)
	}
	_, wire, err = vector(text, "none")
	require.NoError(t, err)
	require.Nil(t, wire)
}
