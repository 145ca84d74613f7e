package document_test

import (
	"testing"

	"monopod/manifests/document"
)

func TestForeignSpacesAreThoseThatAreLookedFor(t *testing.T) {
	for r := range rune(0x4000) {
		if document.IsForeignSpace(r) != document.ForeignSpace.MatchString(string(r)) {
			t.Errorf("U+%04X: %v", r, document.IsForeignSpace(r))
		}
	}
}
