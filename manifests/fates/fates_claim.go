package fates

import (
	"sort"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests/document"
)

// ClaimSources refuses claims whose content is to come from elsewhere.
func ClaimSources(spec *corev1.PersistentVolumeClaimSpec, it document.Item, at string) []document.Problem {
	var found []document.Problem
	for name, set := range map[string]bool{"dataSource": spec.DataSource != nil, "dataSourceRef": spec.DataSourceRef != nil} {
		if set {
			found = append(found, document.Problem{Path: it.Path(at + "." + name), Msg: notSupported(noFill), Hint: fillHint})
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Path < found[j].Path })
	return found
}
