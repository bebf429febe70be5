from fastapi import FastAPI

from app.routes import router


def create_app() -> FastAPI:
    app = FastAPI(title="Shop")
    app.include_router(router, prefix="/v1")
    return app


app = create_app()
