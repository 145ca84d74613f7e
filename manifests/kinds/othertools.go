package kinds

import (
	"path"
	"slices"
	"strings"
)

const (
	composeHint   = "this looks like a file of Docker Compose: write a Pod for each service, or have kompose convert it"
	chartHint     = "this looks like the Chart.yaml of a Helm chart: render the chart with `helm template` and use its output"
	valuesHint    = "this looks like the values of a Helm chart: render the chart with `helm template` and use its output"
	kustomizeHint = "this looks like a kustomization: use the output of `kubectl kustomize DIR`"
)

// otherTool returns what to do with a document that is the input of another tool; empty: it is none that is known.
func otherTool(m map[string]any, file string) string {
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return m[name] != nil })
	}
	kind, _ := m["kind"].(string)
	version, _ := m["apiVersion"].(string)
	_, services := m["services"].(map[string]any)
	base := strings.ToLower(path.Base(strings.ReplaceAll(file, `\`, "/")))
	stem := strings.TrimSuffix(strings.TrimSuffix(base, ".yml"), ".yaml")
	_, listed := m["resources"].([]any)
	switch {
	case strings.HasPrefix(version, "kustomize.config.k8s.io/"):
		return kustomizeHint
	case kind != "":
		return ""
	case services:
		return composeHint
	case stem == "chart", has("name") && has("version") && (version == "v1" || version == "v2"):
		return chartHint
	case stem == "kustomization", listed, has("namePrefix", "nameSuffix", "patchesStrategicMerge", "configMapGenerator", "secretGenerator"):
		return kustomizeHint
	case stem == "values" || strings.HasPrefix(stem, "values-") || strings.HasPrefix(stem, "values."):
		return valuesHint
	}
	return ""
}

// ListHint is about a list where an object is expected.
const ListHint = "write its elements as items of {apiVersion: v1, kind: List}, or as documents with --- between them"
