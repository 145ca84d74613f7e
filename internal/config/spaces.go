package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"monopod/manifests"
)

// Spaces returns the boundaries between the sources.
func (c *Config) Spaces() *manifests.Spaces {
	s := &manifests.Spaces{Sharing: c.Sharing}
	for _, name := range c.allSources() {
		if c.isLocal(name) {
			s.Local = append(s.Local, name)
		}
	}
	return s
}

// isLocal reports whether a source belongs to the local space: its pods may do everything.
func (c *Config) isLocal(name string) bool {
	return name != SourceAPIServer && slices.Contains(c.allSources(), name) && c.Policy(name).Privileged()
}

// spaces checks that sharing and namespaces name existing sources and possible namespaces.
func (c *configCheck) spaces(cfg *Config) {
	all := cfg.allSources()
	for _, reader := range slices.Sorted(maps.Keys(cfg.Sharing)) {
		c.oneOf("sharing", reader, all...)
		for _, entry := range cfg.Sharing[reader] {
			source, namespace, limited := strings.Cut(entry, "/")
			c.oneOf("sharing", source, all...)
			if limited && len(validation.IsDNS1123Label(namespace)) > 0 {
				c.add("sharing", fmt.Sprintf("%q: %q is not a namespace", entry, namespace), "write source or source/namespace")
			}
		}
	}
	for _, source := range slices.Sorted(maps.Keys(cfg.Namespaces)) {
		c.oneOf("namespaces", source, all...)
		names := cfg.Namespaces[source]
		if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return len(validation.IsDNS1123Label(name)) > 0 }) {
			c.add("namespaces", fmt.Sprintf("%s: %q is not a list of namespaces", source, names), "leave a source out that may use any")
		}
	}
}
