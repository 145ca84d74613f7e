package fetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"monopod/manifests"
	"monopod/watcher"
)

// restore loads the copy on disk, once. found reports whether there was something to report, err what was wrong with it.
func (s *Remote) restore(ctx context.Context) (found bool, err error) {
	if s.loaded || s.cfg.Copy == nil {
		return false, nil
	}
	s.loaded = true
	if s.signed {
		s.highest, s.versionErr = s.cfg.Copy.Highest()
		s.raised = s.highest
	}
	k, err := s.cfg.Copy.Load()
	if errors.Is(err, fs.ErrNotExist) {
		// Nothing runs from a source that has never had an answer. That of staticPodURL is older than copies are.
		s.fresh = s.cfg.Name != httpSource && s.highest == 0
		return false, nil
	}
	if err == nil {
		err = s.revive(ctx, k)
	}
	if err != nil {
		s.copyErr = err
		return true, fmt.Errorf("%s: has not answered yet", s.cfg.Input)
	}
	return true, s.flaws
}

// revive takes over what was kept.
func (s *Remote) revive(ctx context.Context, k *Kept) error {
	if s.signed {
		s.highest = max(s.highest, k.Version)
	}
	if k.Counts != nil {
		counted, err := s.loadList(k.Counts, watcher.MaxInput/2)
		if counted == nil {
			return fmt.Errorf("the cached answer is not used: %w", err)
		}
		s.content = *counted
	}
	payload, version, err := s.cfg.Verify(ctx, k.Body, k.Signature)
	if err != nil {
		s.content = manifests.Content{}
		return fmt.Errorf("the cached answer is not used: %s: %w", s.cfg.Input, err)
	}
	got, err := s.judge(payload)
	if err != nil {
		s.content = manifests.Content{}
		return fmt.Errorf("the cached answer is not used: %w", err)
	}
	k.Stale = k.Stale || version < s.highest // what was accepted last is not this
	s.version = version
	s.accept(sumOf(k.Body, k.Signature), got)
	s.know(got.whole && !k.Stale)
	s.kept = keptSum(k)
	if k.Stale {
		s.kept = [sha256.Size]byte{} // to be written again, also if it is still the answer
		s.unkept = k
	}
	if k.Place == hashOf(s.cfg.Place) {
		s.seen = k.Validators
	}
	s.copied = k.Received
	s.age = fmt.Sprintf("this is the cached answer of %s (%s)", k.Received.Format(time.RFC3339), ageText(s.cfg.Now().Sub(k.Received)))
	return nil
}

// ageText formats an age. It is approximate at best: the clock may have been wrong then, or be wrong now.
func ageText(age time.Duration) string {
	switch {
	case age < 0:
		return "in the future according to the clock"
	case age < time.Minute:
		return "less than a minute old"
	case age < 2*time.Minute:
		return "a minute old"
	case age < 2*time.Hour:
		return fmt.Sprintf("%d minutes old", int(age/time.Minute))
	case age < 48*time.Hour:
		return fmt.Sprintf("%d hours old", int(age/time.Hour))
	}
	return fmt.Sprintf("%d days old", int(age/(24*time.Hour)))
}

// keep writes what is not on disk yet.
func (s *Remote) keep() {
	if s.cfg.Copy == nil {
		return
	}
	s.keepAnswer()
	if s.raised == s.highest {
		return
	}
	if s.versionErr = s.cfg.Copy.Raise(s.highest); s.versionErr == nil {
		s.raised = s.highest
	}
}

func (s *Remote) keepAnswer() {
	if s.unkept == nil {
		return
	}
	sum := keptSum(s.unkept)
	if sum != s.kept {
		if s.copyErr = s.cfg.Copy.Save(s.unkept); s.copyErr != nil {
			return
		}
	}
	s.kept, s.unkept, s.copyErr = sum, nil, nil
}

// keptSum covers what makes it worth to write a copy again.
func keptSum(k *Kept) [sha256.Size]byte { return sumOf(k.Body, k.Signature, k.Counts) }

func hashOf(place string) string { return checksum([]byte(place)) }

// loadList loads what listOf has printed, in parts of about most bytes: with its defaults, in JSON, it may be larger than
// an input may be.
func (s *Remote) loadList(data []byte, most int) (*manifests.Content, error) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	all := &manifests.Content{}
	var errs []error
	for rest := list.Items; len(rest) > 0; {
		n, size := 0, 0
		for n < len(rest) && (n == 0 || size+len(rest[n]) <= most) {
			size += len(rest[n])
			n++
		}
		part, err := watcher.SafeLoad(s.cfg.Load, s.cfg.Input, bytes.Join(asBytes(rest[:n]), []byte{'\n'}))
		if errs = append(errs, err); part == nil {
			return nil, err
		}
		all.Pods = append(all.Pods, part.Pods...)
		all.Objects = append(all.Objects, part.Objects...)
		all.Workloads = append(all.Workloads, part.Workloads...)
		rest = rest[n:]
	}
	return all, errors.Join(errs...)
}

func asBytes(items []json.RawMessage) [][]byte {
	all := make([][]byte, len(items))
	for i, item := range items {
		all[i] = item
	}
	return all
}

// listOf prints content as a List in JSON.
func listOf(c *manifests.Content) ([]byte, error) {
	items := []any{}
	for _, p := range c.Pods {
		items = append(items, p.Object)
	}
	for _, o := range slices.Concat(c.Objects, c.Workloads) {
		items = append(items, o.Object)
	}
	return json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}
