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
	levels := map[string]string{SourceFile: c.StaticPodPathSecurity, SourceHTTP: c.StaticPodURLSecurity, SourceApplied: c.AppliedSecurity}
	for i := range c.RemoteSources {
		levels[c.RemoteSources[i].Name] = c.RemoteSources[i].PodSecurity
	}
	level, known := levels[name]
	return known && c.Policy(level).Privileged()
}

// sharing checks that sharing names existing sources.
func (c *configCheck) sharing(cfg *Config) {
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
}
