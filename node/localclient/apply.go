package localclient

import (
	"context"
	"net/http"
	"net/url"

	"monopod/node/localapi"
)

// Apply stores documents and returns what became of each.
func (c *Client) Apply(ctx context.Context, r localapi.ApplyRequest) (localapi.ApplyResult, error) {
	return c.change(ctx, http.MethodPut, r)
}

// Delete removes documents that were applied.
func (c *Client) Delete(ctx context.Context, r localapi.DeleteRequest) (localapi.ApplyResult, error) {
	return c.change(ctx, http.MethodDelete, r)
}

func (c *Client) change(ctx context.Context, method string, request any) (result localapi.ApplyResult, err error) {
	err = c.send(ctx, method, localapi.Self("applied"), request, &result)
	return result, err
}

// WatchAll is Watch for all pods with a Bookmark event behind those that there are: a pod that has not been seen before it
// does not exist. It comes only once all pods can be seen.
func (c *Client) WatchAll(ctx context.Context, each func(PodEvent) error) error {
	return watchPods(ctx, c, "", url.Values{"sendInitialEvents": {"true"}}, each)
}
