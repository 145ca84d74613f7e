package codec

import "strings"

// yamlErrors splits the error of a strict YAML parser, which has no structured parts, into its lines.
func yamlErrors(err error) []string {
	all := err.Error()
	for _, lead := range []string{"error converting YAML to JSON: ", "yaml: unmarshal errors:\n", "yaml: "} {
		all = strings.TrimPrefix(all, lead)
	}
	var lines []string
	for line := range strings.SplitSeq(all, "\n") {
		if len(lines) > maxUnknown {
			break
		}
		lines = append(lines, brief(strings.TrimSpace(line)))
	}
	return lines
}
