package file

import (
	"path/filepath"
	"strings"
)

// nameKind is what a directory entry is, judged by its name.
type nameKind int

const (
	// foreign: neither a manifest nor a dropping; reported once as Ignored.
	foreign nameKind = iota
	// manifest: read.
	manifest
	// dropping: a file that editors and tools make and take away while they work; never looked at.
	dropping
)

// classify judges a name. Only the endings .yaml, .yml and .json make a manifest. Backups such as x.yaml.bak or
// x.yaml.orig are foreign: they stay around, and their owner may wonder why they do not run.
func classify(name string) nameKind {
	switch {
	case strings.HasPrefix(name, "."), // hidden files, vim's .x.swp, emacs' .#x, rsync's .x.AbCd, ConfigMaps' ..data
		strings.HasSuffix(name, "~"),
		strings.HasSuffix(name, ".swp"), strings.HasSuffix(name, ".swx"),
		strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#"),
		name == "4913": // vim tries with this name whether it may write into the directory
		return dropping
	case endsLikeManifest(name):
		return manifest
	}
	return foreign
}

func endsLikeManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}
