// The token: asked for when the server wants one, kept in sessionStorage, so that it ends with the tab.

const NAME = "penstock-token";

export const token = () => sessionStorage.getItem(NAME);
export const keepToken = (secret) => sessionStorage.setItem(NAME, secret);
export const forgetToken = () => sessionStorage.removeItem(NAME);
