package idrange

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"monopod/internal/atomicfile"
	"monopod/internal/regular"
	"monopod/manifests"
)

// Claims are the ranges of all monopods of the machine: one file for each in a directory on a tmpfs. A file is valid as long as the directory
// of its monopod exists, because pods outlive the agent.
type Claims struct {
	// Dir is empty if ranges are not claimed.
	Dir string
	// Owner is the root directory of this monopod.
	Owner string
}

// claim is the content of a file.
type claim struct {
	Owner string   `json:"owner"`
	First []uint32 `json:"first"`
}

const (
	claimSuffix = ".json"
	// maxClaim is more than the claim of all ranges needs.
	maxClaim = 1 << 20
)

// others locks the directory, and returns the ranges of other monopods. Damaged files have none.
func (c Claims) others() (taken []idRange, unlock func(), err error) {
	if c.Dir == "" {
		return nil, func() {}, nil
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("claim user ids: %w", err)
	}
	if unlock, err = atomicfile.Lock(filepath.Join(c.Dir, "lock"), 0o600); err != nil {
		return nil, nil, fmt.Errorf("claim user ids: %w", err)
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		unlock()
		return nil, nil, fmt.Errorf("claim user ids: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), claimSuffix) || e.Name() == c.file() {
			continue
		}
		path := filepath.Join(c.Dir, e.Name())
		var other claim
		data, err := regular.ReadFile(path, maxClaim)
		if err != nil || json.Unmarshal(data, &other) != nil {
			continue
		}
		if _, err := os.Stat(other.Owner); os.IsNotExist(err) {
			_ = os.Remove(path)
			continue
		}
		for _, first := range other.First {
			taken = append(taken, idRange{uint64(first), manifests.UserIDs})
		}
	}
	return taken, unlock, nil
}

// write stores the ranges of this monopod. The caller holds the lock.
func (c Claims) write(taken map[string]uint32) error {
	if c.Dir == "" {
		return nil
	}
	data, err := json.Marshal(claim{Owner: c.Owner, First: slices.Sorted(maps.Values(taken))})
	if err != nil {
		return err
	}
	path := filepath.Join(c.Dir, c.file())
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("claim user ids: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("claim user ids: %w", err)
	}
	return nil
}

// file is the name of this monopod's file.
func (c Claims) file() string {
	sum := sha256.Sum256([]byte(c.Owner))
	return hex.EncodeToString(sum[:16]) + claimSuffix
}
