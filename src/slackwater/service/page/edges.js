/** The edges of a place that scrolls: they fade where there is more beyond, for scrollbars are not seen everywhere. */

/** Pixels beyond an edge that are none: sizes are rounded. */
const SLACK = 2;

/** Marks what holds a place while there is more below it or right of it; returns what looks again, after a change in it. */
export function watchEdges(place) {
  const holder = place.parentElement;
  const look = () => {
    holder.toggleAttribute("data-below", place.scrollHeight - place.clientHeight - place.scrollTop > SLACK);
    holder.toggleAttribute("data-right", place.scrollWidth - place.clientWidth - place.scrollLeft > SLACK);
    // what fades leaves the scrollbars alone, where they take room
    holder.style.setProperty("--bar-right", `${place.offsetWidth - place.clientWidth}px`);
    holder.style.setProperty("--bar-below", `${place.offsetHeight - place.clientHeight}px`);
  };
  place.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(place);
  return look;
}
