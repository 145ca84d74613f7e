package localclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"

	"monopod/manifests"
	"monopod/node/localapi"
)

// FilePlace is a path in a container.
type FilePlace struct {
	Pod             manifests.Key
	Container, Path string
}

func (p FilePlace) url(more url.Values) string {
	q := url.Values{"container": {p.Container}, "path": {p.Path}}
	maps.Copy(q, more)
	return localapi.PodReport(p.Pod.Namespace, p.Pod.Name, "files") + "?" + q.Encode()
}

// ReadFiles passes the tree at a place to take, as a stream of tar. It returns the warnings that come with it.
func (c *Client) ReadFiles(ctx context.Context, from FilePlace, take func(io.Reader) error) ([]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://monopod"+from.url(nil), nil)
	if err != nil {
		return nil, err
	}
	res, err := c.answer(req, eachPart)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if err = take(res.Body); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	if _, e := io.Copy(io.Discard, &budgetReader{from: res.Body, left: maxHeader}); e != nil { // the trailer is behind it
		return nil, fmt.Errorf("answer to %s: %w", req.URL.Path, e)
	}
	if text := res.Trailer.Get(localapi.TrailerError); text != "" {
		err = errors.New(text)
	}
	return res.Trailer.Values(localapi.TrailerWarning), err
}

// WriteFiles sends a tree called name, as a stream of tar, to a place: the directory that it goes into, or what it is called from
// now on. Without a name the stream goes into the directory as it is.
func (c *Client) WriteFiles(ctx context.Context, to FilePlace, name string, from io.Reader) (localapi.Written, error) {
	var written localapi.Written
	more := url.Values{}
	if name != "" {
		more.Set("name", name)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://monopod"+to.url(more), from)
	if err != nil {
		return written, err
	}
	req.Header.Set("Content-Type", localapi.MediaTar)
	body, err := c.do(req, eachPart)
	if err != nil {
		return written, err
	}
	defer body.Close()
	return written, c.decode(req.URL.Path, body, &written)
}
