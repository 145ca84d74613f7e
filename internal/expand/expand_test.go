package expand

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "1", "B": "$(A)", "": "empty", "a b": "space"}
	tests := []struct{ name, in, want string }{
		{"text without a dollar stays", "plain (A)", "plain (A)"},
		{"a reference is replaced", "x$(A)y", "x1y"},
		{"the value is not expanded again", "$(B)", "$(A)"},
		{"an unknown name stays", "$(C)", "$(C)"},
		{"two dollars are one", "$$", "$"},
		{"two dollars protect a reference", "$$(A)", "$(A)"},
		{"three dollars are one and a reference", "$$$(A)", "$1"},
		{"a dollar at the end stays", "A$", "A$"},
		{"a dollar before anything else stays", "$A ${A}", "$A ${A}"},
		{"an open reference stays", "$(A", "$(A"},
		{"an open reference hides no later one", "$($(A)", "$($(A)"},
		{"references may touch", "$(A)$(A)", "11"},
		{"a name may be empty", "$()", "empty"},
		{"a name may have spaces", "$(a b)", "space"},
		{"bytes that are not text stay", "$\xff$(A)", "$\xff1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Word(tt.in, vars); got != tt.want {
				t.Errorf("expand(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

// expandModel is the specification again, one character after the other.
func expandModel(s string, vars map[string]string) string {
	out := ""
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != '$' || i+1 == len(s):
			out += s[i : i+1]
		case s[i+1] == '$':
			out += "$"
			i++
		case s[i+1] == '(' && strings.Contains(s[i+2:], ")"):
			name := s[i+2 : i+2+strings.Index(s[i+2:], ")")]
			if v, ok := vars[name]; ok {
				out += v
			} else {
				out += "$(" + name + ")"
			}
			i += 2 + len(name)
		default:
			out += s[i : i+2]
			i++
		}
	}
	return out
}

func FuzzExpand(f *testing.F) {
	f.Add("$(A) $$(A) $(")
	f.Fuzz(func(t *testing.T, s string) {
		vars := map[string]string{"A": "1", "B": "$$(A)"}
		if got, want := Word(s, vars), expandModel(s, vars); got != want {
			t.Errorf("expand(%q) = %q, want %q", s, got, want)
		}
		if got := Word(strings.ReplaceAll(s, "$", "$$"), vars); got != s {
			t.Errorf("%q with doubled dollars became %q", s, got)
		}
	})
}

func TestExpandAgreesWithItsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"$", "(", ")", "A", "B", "x", "$(A)", "é"})).Draw(rt, "parts"), "")
		vars := map[string]string{"A": "1", "B": "$(A)"}
		if got, want := Word(s, vars), expandModel(s, vars); got != want {
			rt.Fatalf("expand(%q) = %q, want %q", s, got, want)
		}
	})
}

func TestLengthIsThatOfTheResult(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"$", "(", ")", "A", "B", "x", "$(A)", "é"})).Draw(rt, "parts"), "")
		vars := map[string]string{"A": "1", "B": strings.Repeat("$(A)", 5)}
		want := Word(s, vars)
		if got := Length(s, 1<<20, Lengths(vars)); got != len(want) {
			rt.Fatalf("Length(%q) = %d, want %d", s, got, len(want))
		}
		most := rapid.IntRange(0, 20).Draw(rt, "most")
		got, err := Within(most, s, vars)
		if long := len(want) > most; long != (err != nil) || !long && got != want {
			rt.Fatalf("Within(%d, %q) = %q, %v; want %q", most, s, got, err, want)
		}
	})
}

// Five bytes stand for a megabyte, a hundred thousand times: neither the memory nor the time for that is spent.
func TestAResultThatIsTooLongIsNotBuilt(t *testing.T) {
	vars := map[string]string{"A": strings.Repeat("x", 1<<20)}
	s := strings.Repeat("$(A)", 100_000)
	allocations := testing.AllocsPerRun(10, func() {
		if _, err := Within(1<<17, s, vars); err == nil {
			t.Error("it was built")
		}
	})
	if allocations > 10 {
		t.Errorf("%v allocations", allocations)
	}
}

// Each of these opens a reference that nothing closes; looking for the end of each would take hours.
func TestOpenReferencesCostNoMoreThanTheirLength(t *testing.T) {
	s := strings.Repeat("$(", 5<<20)
	if got := Length(s, len(s), Lengths(nil)); got != len(s) {
		t.Errorf("Length = %d, want %d", got, len(s))
	}
}
