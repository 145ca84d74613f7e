package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"monopod/internal/config/suggest"
)

// unknownKey explains an unknown key, with a hint at the one that may have been meant.
func unknownKey(path string, keys map[string]Key) (msg, hint string) {
	if path == "apiVersion" || path == "kind" {
		return "a monopod configuration has no " + path, "remove the line"
	}
	known := slices.Sorted(maps.Keys(keys))
	top, _, _ := strings.Cut(path, ".")
	if own, ok := suggest.FormerNames()[path]; ok {
		return "unknown key", "monopod calls it " + own
	}
	if suggest.OfKubelet(top) && !hasTop(known, top) {
		return fmt.Sprintf("monopod has no %s, it is a setting of the kubelet only", path), "remove it"
	}
	return "unknown key", DidYouMean(path, known)
}

func hasTop(known []string, top string) bool {
	return slices.ContainsFunc(known, func(k string) bool { t, _, _ := strings.Cut(k, "."); return strings.EqualFold(t, top) })
}

// DidYouMean returns a hint with the nearest of the known names, empty when none is near.
func DidYouMean(name string, known []string) string { return suggest.DidYouMean(name, known) }
