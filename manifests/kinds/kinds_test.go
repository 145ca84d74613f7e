package kinds

import (
	"slices"
	"testing"
)

func TestNoKindThatIsReadIsAlsoIgnored(t *testing.T) {
	for kind, info := range readKinds() {
		if slices.Contains(ignoredKinds()[GroupOf(info.Version)], kind) {
			t.Errorf("a %s of another version than %s is dropped without a word", kind, info.Version)
		}
	}
}
