package config

import (
	"regexp"
	"strconv"
	"strings"
)

var yamlErrorLine = regexp.MustCompile(`^line (\d+): `)

// splitYAMLError splits the line number off the message of the YAML parser.
func splitYAMLError(problem error) (int, string) {
	msg := strings.TrimPrefix(problem.Error(), "yaml: ")
	m := yamlErrorLine.FindStringSubmatch(msg)
	if m == nil {
		return 0, "yaml: " + msg
	}
	line, err := strconv.Atoi(m[1])
	if err != nil {
		return 0, "yaml: " + msg
	}
	return line, "yaml: " + msg[len(m[0]):]
}
