package localclient

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

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
	err = c.send(ctx, method, "/v1/applied", request, &result)
	return result, err
}

// send asks for a change and reads the answer.
func (c *Client) send(ctx context.Context, method, path string, request, answer any) error {
	body, err := c.ask(ctx, method, path, request, wholeAnswer)
	if err != nil {
		return err
	}
	defer body.Close()
	return c.decode(path, body, answer)
}

// ask sends a request with a body and returns that of a good answer.
func (c *Client) ask(ctx context.Context, method, path string, request any, u until) (io.ReadCloser, error) {
	b, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://monopod"+path, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return c.do(req, u)
}

// WatchAll is Watch for all pods with a Bookmark event behind those that there are: a pod that has not been seen before it
// does not exist. It comes only once all pods can be seen.
func (c *Client) WatchAll(ctx context.Context, each func(PodEvent) error) error {
	return follow(ctx, c, "/v1/pods?watch=true&sendInitialEvents=true", each)
}
