package inventory

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	"monopod/runner/ctrd/image/local"
)

// Config of an Inventory.
type Config struct {
	Local *local.Store
	// DropPartial removes the content of failed pulls.
	DropPartial func(context.Context) error
	Log         *slog.Logger
}

// Inventory lists and collects images. It is safe for concurrent use.
type Inventory struct {
	Config
	// collecting is locked during a collection.
	collecting sync.Mutex

	mu sync.Mutex
	// archives has the names of the images in each archive of the preload directories.
	archives map[string][]string
}

// New returns an Inventory. It does no I/O.
func New(cfg Config) *Inventory {
	return &Inventory{Config: cfg, archives: map[string][]string{}}
}

// RecordArchive records which images an archive contains.
func (v *Inventory) RecordArchive(path string, names []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.archives[path] = names
}

// ArchivesByName returns the archives that still exist, by the names of their images.
func (v *Inventory) ArchivesByName() map[string][]string {
	v.mu.Lock()
	archives := maps.Clone(v.archives)
	v.mu.Unlock()
	byName := map[string][]string{}
	for _, path := range slices.Sorted(maps.Keys(archives)) {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		for _, name := range archives[path] {
			byName[name] = append(byName[name], path)
		}
	}
	return byName
}
