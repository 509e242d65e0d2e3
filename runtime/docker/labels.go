package docker

import (
	"context"
	"maps"
	"sync"

	"github.com/trimtab/trimtab/runtime/engine"
)

// maxImages bounds the images whose labels are remembered.
const maxImages = 1024

// imageLabels are trimtab's own labels of images, by image ID; they never change.
type imageLabels struct {
	mu   sync.Mutex
	all  map[string]map[string]string
	lost string // the image that could not be looked at, as last logged
}

// ownLabels are those that who started a container gave it. Docker adds the image's, which
// anybody may have built: one of trimtab's that the image bears too asks for nothing. Of an image
// that cannot be looked at any such label may be.
func (e *Engine) ownLabels(ctx context.Context, imageID string, all map[string]string) map[string]string {
	ours := engine.OwnLabels(all)
	if e.opts.ImageLabels || len(ours) == 0 {
		return all
	}
	image, known := e.labelsOf(ctx, imageID)
	own := maps.Clone(all)
	for key, value := range ours {
		if is, ok := image[key]; !known || ok && is == value {
			delete(own, key)
		}
	}
	return own
}

func (e *Engine) labelsOf(ctx context.Context, imageID string) (labels map[string]string, known bool) {
	m := &e.images
	m.mu.Lock()
	labels, known = m.all[imageID]
	m.mu.Unlock()
	if known {
		return labels, true
	}
	image, err := e.client.ImageInspect(ctx, imageID)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if m.lost != imageID {
			e.opts.Logger.Warn("an image cannot be looked at: labels of its containers ask for nothing", "image", imageID, "error", err)
			m.lost = imageID
		}
		return nil, false
	}
	if image.Config != nil {
		labels = engine.OwnLabels(image.Config.Labels)
	}
	if m.all == nil || len(m.all) >= maxImages {
		m.all = map[string]map[string]string{}
	}
	m.all[imageID] = labels
	return labels, true
}
