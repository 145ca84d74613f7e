package manifests

import "testing"

func TestForeignSpacesAreThoseThatAreLookedFor(t *testing.T) {
	for r := range rune(0x4000) {
		if isForeignSpace(r) != foreignSpace.MatchString(string(r)) {
			t.Errorf("U+%04X: %v", r, isForeignSpace(r))
		}
	}
}
