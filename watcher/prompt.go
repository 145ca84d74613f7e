package watcher

import (
	"os"
	"path/filepath"
)

// prompt is a Source that may be read without waiting for anybody, and whether this one is. As long as one that is has
// not sent its first Set, nothing is published: a pod that is written there too must not be started from a source of
// lower precedence.
type prompt interface{ Prompt() bool }

// Prompt says that the first Set does not wait for anybody.
func (s *FileSource) Prompt() bool { return true }

// Prompt says that there is a copy of the last good answer to begin with.
func (s *Remote) Prompt() bool { return s.cfg.Copy != nil && s.cfg.Copy.exists() }

func (c *Copy) exists() bool {
	for _, name := range []string{copyFile, staleFile} {
		if _, err := os.Stat(filepath.Join(c.dir, name)); err == nil {
			return true
		}
	}
	return false
}
