package manifests_test

import (
	"testing"

	"monopod/manifests"
)

func TestKeysSortByNamespaceThenName(t *testing.T) {
	a, b, c := manifests.Key{Namespace: "a", Name: "z"}, manifests.Key{Namespace: "b", Name: "a"}, manifests.Key{Namespace: "b", Name: "b"}
	if !a.Less(b) || !b.Less(c) || b.Less(a) || c.Less(b) || a.Less(a) {
		t.Error("wrong order")
	}
}
