package daemon

import (
	"context"
	"errors"
	"time"

	"monopod/manifests"
	"monopod/node/apiserver"
	"monopod/watcher"
	"monopod/watcher/fetch"
)

// boundAgain is how long after an answer of the API server's source it is asked for the next one, which it gives when there is one.
const boundAgain = 500 * time.Millisecond

// bound is the reporter as a place of manifests.
type bound struct{ agent func() *apiserver.Agent }

// Fetch implements watcher.Fetcher.
func (b bound) Fetch(ctx context.Context, seen fetch.Validators) (*fetch.Answer, error) {
	body, tag, err := b.agent().Bound(ctx, seen.ETag)
	switch {
	case errors.Is(err, apiserver.ErrSame):
		return nil, fetch.ErrNotModified
	case err != nil:
		return nil, err
	}
	return &fetch.Answer{Body: body, Validators: fetch.Validators{ETag: tag}}, nil
}

// Close implements watcher.Fetcher.
func (bound) Close() {}

// withLeftOut adds what the API server's source says of pods that cannot run here.
func withLeftOut(load watcher.Loader) watcher.Loader {
	return func(input string, data []byte) (*manifests.Content, error) {
		c, err := load(input, data)
		if c != nil {
			c.Ignored = append(c.Ignored, apiserver.LeftOut(data)...)
		}
		return c, err
	}
}
