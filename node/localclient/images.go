package localclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"monopod/internal/model"
	"monopod/node/localapi"
)

// Images returns all images of the machine.
func (c *Client) Images(ctx context.Context) (*localapi.ImageList, error) {
	list := &localapi.ImageList{}
	return list, c.getJSON(ctx, localapi.Self("images"), list)
}

// RemoveImages removes images.
func (c *Client) RemoveImages(ctx context.Context, r localapi.ImageRemoval) (localapi.ImagesRemoved, error) {
	var out localapi.ImagesRemoved
	return out, c.send(ctx, http.MethodDelete, localapi.Self("images"), r, &out)
}

// Pulls returns the pulls of these images that are under way.
func (c *Client) Pulls(ctx context.Context, refs []string) ([]model.Pull, error) {
	var pulls []model.Pull
	return pulls, c.getJSON(ctx, localapi.Self("pulls")+"?"+url.Values{"image": refs}.Encode(), &pulls)
}

// Pull fetches images and calls each with the progress. It returns when each of them is here or could not be had.
func (c *Client) Pull(ctx context.Context, r localapi.PullRequest, each func(localapi.PullEvent) error) error {
	body, err := c.ask(ctx, http.MethodPost, localapi.Self("pulls"), r, firstByte)
	if err != nil {
		return err
	}
	defer body.Close()
	left := map[string]bool{}
	for _, ref := range r.Images {
		left[ref] = true
	}
	for all := c.objects(body); len(left) > 0; {
		var e localapi.PullEvent
		switch err := all.next(&e); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return ErrEnded
		case err != nil:
			return fmt.Errorf("read the progress: %w", err)
		}
		if e.State != localapi.PullPulling {
			delete(left, e.Image)
		}
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}
